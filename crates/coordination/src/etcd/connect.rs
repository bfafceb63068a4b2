//! Ways to etcd's servers: plain or over TLS, with or without a name and a password.

use super::{EtcdOptions, Tls};
use crate::proto;
use std::path::Path;
use std::time::Duration;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Request, Status};

/// How long etcd may take to take a connection, or to answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// How often a connection on which nothing happens is tried.
const TRY_EVERY: Duration = Duration::from_secs(1);

/// Puts etcd's token on what is asked.
#[derive(Clone)]
pub(super) struct AuthToken(Option<MetadataValue<Ascii>>);

impl Interceptor for AuthToken {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(token) = &self.0 {
            request.metadata_mut().insert("token", token.clone());
        }
        Ok(request)
    }
}

/// A connection to one of etcd's servers.
pub(super) type EtcdConnection = InterceptedService<Channel, AuthToken>;

/// The servers, of which one is used at a time.
pub(super) struct EtcdServerList {
    endpoints: Vec<Endpoint>,
    user: Option<(String, String)>,
    next: usize,
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    std::fs::read(path).map_err(|e| format!("{}: {e}", path.display()))
}

fn config(tls: &Tls) -> Result<ClientTlsConfig, String> {
    let config = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(read(&tls.ca)?));
    Ok(match &tls.own {
        Some((own, key)) => config.identity(Identity::from_pem(read(own)?, read(key)?)),
        None => config,
    })
}

impl EtcdServerList {
    pub(super) fn new(options: &EtcdOptions) -> Result<Self, String> {
        let EtcdOptions { endpoints, tls, user, .. } = options;
        if endpoints.is_empty() {
            return Err("etcd.endpoints is empty: give one, such as http://10.0.0.9:2379".into());
        }
        let endpoint = |at: &String| {
            let secure = at.starts_with("https://");
            if !secure && !at.starts_with("http://") {
                return Err(format!("etcd.endpoints: {at}: begin it with http:// or https://"));
            }
            let endpoint = Endpoint::from_shared(at.clone())
                .map_err(|e| format!("etcd.endpoints: {at}: {e}"))?
                .connect_timeout(PATIENCE)
                .http2_keep_alive_interval(TRY_EVERY)
                .keep_alive_timeout(PATIENCE)
                .keep_alive_while_idle(true);
            match (secure, tls) {
                (false, None) => Ok(endpoint),
                (true, Some(tls)) => {
                    let told = |e| format!("etcd: the certificates are of no use: {e}");
                    endpoint.tls_config(config(tls)?).map_err(told)
                }
                (true, None) => Err(format!("etcd.endpoints: {at}: for https give etcd.ca, too")),
                (false, Some(_)) => {
                    Err(format!("etcd.endpoints: {at}: etcd.ca is given, so make it https"))
                }
            }
        };
        let endpoints = endpoints.iter().map(endpoint).collect::<Result<_, _>>()?;
        Ok(Self { endpoints, user: user.clone(), next: 0 })
    }

    /// Connects to the server whose turn it is.
    pub(super) async fn connect(&mut self) -> Result<EtcdConnection, String> {
        let endpoint = &self.endpoints[self.next % self.endpoints.len()];
        let at = endpoint.uri().clone();
        self.next += 1;
        let told = |e: &dyn std::error::Error| {
            let cause = e.source().map_or_else(String::new, |cause| format!(": {cause}"));
            format!("{at}: {e}{cause}")
        };
        // The endpoint's own patience ends with TCP's handshake, before that of TLS.
        let channel = match tokio::time::timeout(PATIENCE, endpoint.connect()).await {
            Ok(connected) => connected.map_err(|e| told(&e))?,
            Err(_) => return Err(format!("{at}: no connection within {PATIENCE:?}")),
        };
        let token = match &self.user {
            None => None,
            Some((name, password)) => {
                let mut auth = proto::auth_client::AuthClient::new(channel.clone());
                let ask =
                    proto::AuthenticateRequest { name: name.clone(), password: password.clone() };
                let given = within(auth.authenticate(ask)).await;
                let given = given.map_err(|why| format!("{at}: user {name}: {why}"))?;
                let token = given.token.parse();
                Some(token.map_err(|_| format!("{at}: its token is no text"))?)
            }
        };
        Ok(InterceptedService::new(channel, AuthToken(token)))
    }
}

/// The answer of etcd, if it arrives in time.
pub(super) async fn within<T>(
    asked: impl Future<Output = Result<tonic::Response<T>, Status>>,
) -> Result<T, String> {
    match tokio::time::timeout(PATIENCE, asked).await {
        Ok(Ok(answer)) => Ok(answer.into_inner()),
        Ok(Err(status)) => Err(format!("{:?}: {}", status.code(), status.message())),
        Err(_) => Err(format!("no answer within {PATIENCE:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_go_together_is_refused_by_name() {
        let refused = |at: &str, tls: Option<Tls>| {
            let options = EtcdOptions {
                endpoints: vec![at.to_string()],
                prefix: "/x/".into(),
                user: None,
                tls,
                lease: Duration::from_secs(5),
            };
            EtcdServerList::new(&options).err().unwrap_or_default()
        };
        let tls = Tls { ca: "/nonexistent/ca.pem".into(), own: None };
        assert_eq!(refused("http://h:1", None), "");
        assert!(refused("h:1", None).contains("begin it with http://"));
        assert!(refused("https://h:1", None).contains("give etcd.ca"));
        assert!(refused("http://h:1", Some(tls.clone())).contains("make it https"));
        assert!(refused("https://h:1", Some(tls)).starts_with("/nonexistent/ca.pem: "));
    }
}
