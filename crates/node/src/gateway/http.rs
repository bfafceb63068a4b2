//! A page for people, metrics for Prometheus, and health checks.
//!
//! `/` shows the shards, `/metrics` the figures, `/healthz` answers while the process lives, and
//! `/workload` counts the multicasts of each set of shards, for `amcast choose --workload`, and
//! `/readyz` while commands that come here can be served, `/readyz/cluster` while the cluster serves.

mod undated;

use super::connection_slots::{IdleRule, LimitedConnection};
use super::files;
use super::limited::{LimitedListener, UndatedServer};
use amcast_kv::client::StoreServer;
use axum::Router;
use axum::extract::State;
use axum::http::{HeaderName, StatusCode, header};
use axum::response::{Html, IntoResponse};
use axum::routing::get;
use std::fmt::Write;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::oneshot;

/// Connections served at a time; one more closes the one whose last answer is the oldest.
pub const CONNECTIONS_MAX: usize = 256;

/// How long a request may take until its answer is taken, and how long the next one may be waited for.
const REQUEST: Duration = Duration::from_secs(5);
const IDLE: Duration = Duration::from_secs(30);

/// A running HTTP gateway.
pub struct HttpGateway {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// A large page is the last answer of its connection, and other connections have their turn before it: a client that sends
/// many requests at once does not have health checks wait.
const LAST_ANSWER: (HeaderName, &str) = (header::CONNECTION, "close");

/// The pages, for a program that serves them beside its own.
pub fn routes(server: Arc<StoreServer>) -> Router {
    Router::new()
        .route("/", get(page))
        .route("/metrics", get(metrics))
        .route("/workload", get(workload))
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready_here))
        .route("/readyz/cluster", get(ready))
        .with_state(server)
}

/// Serves the pages at `listen`; port 0 takes a free one.
///
/// # Errors
/// When the address cannot be listened at, or the thread not be started.
pub fn start(listen: SocketAddr, server: Arc<StoreServer>) -> io::Result<HttpGateway> {
    let listener = TcpListener::bind(listen)?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (stop, stopped) = oneshot::channel();
    let serve = async move {
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let most = files::connections(files::GatewayPort::Pages, CONNECTIONS_MAX);
        let app = routes(server);
        let pages = app.clone();
        let undated: UndatedServer = Box::new(move |connection: LimitedConnection| {
            let pages = pages.clone();
            // A client that is gone needs no answer.
            tokio::spawn(async move { _ = undated::serve(connection, pages).await });
        });
        let rule = IdleRule::InTurn(REQUEST, IDLE);
        let listener = LimitedListener::new(listener, most, rule, undated);
        tokio::select! {
            served = async { axum::serve(listener, app).await } => served,
            _ = stopped => Ok(()),
        }
    };
    let thread = std::thread::Builder::new().name("http-gateway".into()).spawn(move || {
        if let Err(e) = runtime.block_on(serve) {
            tracing::error!("the HTTP gateway ended: {e}");
        }
    })?;
    Ok(HttpGateway { address, stop: Some(stop), thread: Some(thread) })
}

impl HttpGateway {
    /// Where it listens.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Whether its thread runs; it has failed if not.
    pub fn is_serving(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }

    /// Ends it.
    pub fn stop(self) {
        drop(self);
    }
}

impl Drop for HttpGateway {
    fn drop(&mut self) {
        // A receiver that is gone has ended already.
        let _ = self.stop.take().map(|s| s.send(()));
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the HTTP gateway had panicked");
        }
    }
}

/// The readiness of this process: for load balancers.
async fn ready_here(State(server): State<Arc<StoreServer>>) -> (StatusCode, String) {
    readiness_answer(server.status.ready_here(), &server)
}

/// Of the cluster, as this process sees it.
async fn ready(State(server): State<Arc<StoreServer>>) -> (StatusCode, String) {
    readiness_answer(server.status.ready(), &server)
}

fn readiness_answer(ready: Result<(), String>, server: &StoreServer) -> (StatusCode, String) {
    match ready {
        Ok(()) => {
            let lines = [vec!["ready".to_string()], server.status.remarks()].concat();
            (StatusCode::OK, lines.join("\n") + "\n")
        }
        Err(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")),
    }
}

async fn metrics(State(server): State<Arc<StoreServer>>) -> impl IntoResponse {
    tokio::task::yield_now().await;
    match super::metrics::text(&server) {
        Ok(text) => {
            let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
            ([(header::CONTENT_TYPE, kind), LAST_ANSWER], text).into_response()
        }
        Err(e) => (StatusCode::INTERNAL_SERVER_ERROR, e.to_string()).into_response(),
    }
}

async fn workload(State(server): State<Arc<StoreServer>>) -> impl IntoResponse {
    tokio::task::yield_now().await;
    match server.status.workload() {
        Some(text) => {
            ([(header::CONTENT_TYPE, "application/toml"), LAST_ANSWER], text).into_response()
        }
        None => (StatusCode::NOT_FOUND, "nothing is ordered here\n").into_response(),
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

async fn page(State(server): State<Arc<StoreServer>>) -> impl IntoResponse {
    tokio::task::yield_now().await;
    let status = &server.status;
    let state = match status.ready_here() {
        Ok(()) => "<b class=ok>ready</b>".to_owned(),
        Err(why) => format!("<b class=bad>not ready: {}</b>", escaped(&why)),
    };
    let remarks = status.remarks();
    let remarks: String =
        remarks.iter().map(|what| format!("<p class=bad>{}", escaped(what))).collect();
    let map = server.partitions();
    let what = if map.is_by_key() { "keys" } else { "slots" };
    let mut rows = String::new();
    for s in status.shards() {
        let leader = escaped(s.leader.as_deref().unwrap_or("none"));
        let (up, of) = s.replicas;
        let class = if up == of { "ok" } else { "bad" };
        let holds = escaped(&map.describe(s.shard));
        write!(
            rows,
            "<tr><td>{}<td>{holds}<td>{leader}<td class={class}>{up} of {of}<td>{}<td>{}<td>{}",
            s.shard, s.applied, s.waiting, s.keys
        )
        .expect("a string takes all");
    }
    let html = Html(format!(
        "<!doctype html><html lang=en><meta charset=utf-8><meta http-equiv=refresh content=2>\
         <title>amcast: {node}</title><style>body{{font:16px/1.5 system-ui,sans-serif;max-width:60rem;\
         margin:2rem auto;padding:0 1rem;color-scheme:light dark}}table{{border-collapse:collapse;\
         width:100%}}td,th{{text-align:right;padding:.3rem .6rem;border-bottom:1px solid #8884}}\
         .ok{{color:#080}}.bad{{color:#c00}}</style><h1>amcast</h1><p>Node {node}, protocol {protocol}, \
         {state}. {clients} clients, {commands} commands so far.{remarks}<table><tr><th>shard<th>{what}<th>leader\
         <th>replicas<th>applied<th>waiting<th>keys{rows}</table><p><a href=/metrics>metrics</a>",
        node = escaped(&status.node()),
        protocol = escaped(&status.protocol()),
        clients = server.connected(),
        commands = server.commands(),
    ));
    ([LAST_ANSWER], html)
}
