//! An etcd of one test's own.

use amcast_coordination::Tls;
use amcast_test_policy::skip;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A running etcd. Dropping it ends it.
pub(crate) struct EtcdServer {
    dir: PathBuf,
    client: u16,
    peer: u16,
    secure: bool,
    child: Option<Child>,
}

/// A port of this machine that nobody has just now.
fn port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("there is a port");
    listener.local_addr().expect("it has an address").port()
}

fn run(program: &str, words: &[&str]) -> bool {
    let output = Command::new(program).args(words).output();
    match output {
        Ok(output) if output.status.success() => true,
        Ok(output) => {
            println!("{program} {words:?}: {}", String::from_utf8_lossy(&output.stderr));
            false
        }
        Err(e) => {
            println!("{program}: {e}");
            false
        }
    }
}

impl EtcdServer {
    /// Starts one; none where it is not installed, and `test` is skipped.
    pub(crate) fn start(test: &str, name: &str, secure: bool) -> Option<Self> {
        let there = Command::new("etcd").arg("--version").stdout(Stdio::null()).status();
        if !there.is_ok_and(|status| status.success()) {
            skip(test, "no etcd (apt install etcd-server etcd-client)");
            return None;
        }
        let dir = std::env::temp_dir().join(format!("amcast-etcd-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a directory can be made");
        let mut server = Self { dir, client: port(), peer: port(), secure, child: None };
        if secure && !server.make_certificates() {
            skip(test, "no openssl to make certificates with");
            return None;
        }
        server.start_again();
        Some(server)
    }

    fn file(&self, name: &str) -> String {
        self.dir.join(name).display().to_string()
    }

    /// An authority, and a certificate of it for server and clients alike.
    fn make_certificates(&self) -> bool {
        let (ca, ca_key) = (self.file("ca.pem"), self.file("ca.key"));
        let (own, key, request) =
            (self.file("own.pem"), self.file("own.key"), self.file("own.csr"));
        let more = self.file("own.ext");
        std::fs::write(
            &more,
            "subjectAltName=IP:127.0.0.1\nextendedKeyUsage=serverAuth,clientAuth\n",
        )
        .expect("a file can be written");
        let new = ["-newkey", "rsa:2048", "-nodes", "-days", "2"];
        let ca_words = ["req", "-x509", "-subj", "/CN=test-ca", "-keyout", &ca_key, "-out", &ca];
        let own_words = ["req", "-subj", "/CN=root", "-keyout", &key, "-out", &request];
        let signed = ["x509", "-req", "-days", "2", "-CAcreateserial", "-in", &request, "-CA", &ca];
        let signed = [&signed[..], &["-CAkey", &ca_key, "-out", &own, "-extfile", &more]].concat();
        run("openssl", &[&ca_words[..], &new].concat())
            && run("openssl", &[&own_words[..], &new[..3]].concat())
            && run("openssl", &signed)
    }

    pub(crate) fn url(&self) -> String {
        format!("http{}://127.0.0.1:{}", if self.secure { "s" } else { "" }, self.client)
    }

    pub(crate) fn tls(&self) -> Option<Tls> {
        let file = |name: &str| self.dir.join(name);
        let own = Some((file("own.pem"), file("own.key")));
        self.secure.then(|| Tls { ca: file("ca.pem"), own })
    }

    /// Starts it, with what it had.
    pub(crate) fn start_again(&mut self) {
        let peer = format!("http://127.0.0.1:{}", self.peer);
        let mut command = Command::new("etcd");
        command
            .args(["--data-dir", &self.file("data"), "--name", "test"])
            .args(["--listen-client-urls", &self.url(), "--advertise-client-urls", &self.url()])
            .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
            .args(["--initial-cluster", &format!("test={peer}")])
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        if self.secure {
            command.args([
                "--cert-file",
                &self.file("own.pem"),
                "--key-file",
                &self.file("own.key"),
            ]);
            command.args(["--client-cert-auth", "--trusted-ca-file", &self.file("ca.pem")]);
        }
        self.child = Some(command.spawn().expect("etcd can be started"));
        let begun = Instant::now();
        while std::net::TcpStream::connect(("127.0.0.1", self.client)).is_err() {
            assert!(begun.elapsed() < Duration::from_secs(20), "etcd does not listen");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Ends it, as a crash would.
    pub(crate) fn stop(&mut self) {
        if let Some(mut child) = self.child.take() {
            // One that has ended already is what we want.
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// From now on it asks for this name and password; whether that could be set.
    pub(crate) fn ask_for_password(&self, name: &str, password: &str) -> bool {
        let control = |words: &[&str]| {
            let (ca, own, key) = (self.file("ca.pem"), self.file("own.pem"), self.file("own.key"));
            let url = self.url();
            let mut all = vec!["--endpoints", &url];
            if self.secure {
                all.extend(["--cacert", &ca, "--cert", &own, "--key", &key]);
            }
            let mut command = Command::new("etcdctl");
            let output = command.env("ETCDCTL_API", "3").args(all).args(words).output();
            output.is_ok_and(|output| output.status.success())
        };
        control(&["user", "add", &format!("{name}:{password}")])
            && control(&["user", "grant-role", name, "root"])
            && control(&["auth", "enable"])
    }
}

impl Drop for EtcdServer {
    fn drop(&mut self) {
        self.stop();
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}
