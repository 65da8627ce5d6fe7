//! A private Chromium, driven over WebDriver: one chromedriver and one profile for each browser.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use landfall_testkit::{Process, current_test, eventually, not_run};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::process::Command;

use super::super::support::{Daemon, TIMEOUT};

/// The browser ends when dropped.
pub(super) struct Browser {
    _driver: Process,
    driver: SocketAddr,
    session: String,
    profile: TempDir,
    origin: String,
}

impl Drop for Browser {
    /// Kills the processes of this profile, which chromedriver leaves behind when it is killed.
    fn drop(&mut self) {
        let profile = self.profile.path().display().to_string();
        for process in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
            let command = std::fs::read(process.path().join("cmdline")).unwrap_or_default();
            let id = process.file_name().to_string_lossy().parse().ok();
            if let Some(id) = id.filter(|_| String::from_utf8_lossy(&command).contains(&profile)) {
                let _ = kill(Pid::from_raw(id), Signal::SIGKILL);
            }
        }
    }
}

impl Browser {
    /// Starts a browser for the pages of `daemon`. `None` if it is not installed, after calling `not_run`.
    pub(super) async fn start(daemon: &Daemon) -> Option<Self> {
        for program in ["chromium", "chromedriver"] {
            if !std::env::split_paths(&std::env::var_os("PATH")?).any(|folder| folder.join(program).exists()) {
                not_run(&current_test(), &format!("{program} is not installed; run scripts/services"));
                return None;
            }
        }
        let profile = tempfile::tempdir().unwrap();
        let (process, driver) = start_driver(profile.path()).await;
        let folder = format!("--user-data-dir={}", profile.path().display());
        let arguments = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--disable-dev-shm-usage",
            "--force-color-profile=srgb",
            "--hide-scrollbars",
            "--lang=en",
            &folder,
        ];
        let options = json!({"args": arguments, "prefs": {"intl.accept_languages": "en"}});
        let logs = json!({"browser": "ALL"});
        let wanted = json!({"browserName": "chrome", "goog:chromeOptions": options, "goog:loggingPrefs": logs});
        let body = json!({"capabilities": {"alwaysMatch": wanted}});
        let started = send(driver, "POST", "/session", &body).await;
        let session = started["sessionId"].as_str().unwrap_or_else(|| panic!("{started}")).to_owned();
        let origin = format!("http://{}", daemon.address);
        Some(Self { _driver: process, driver, session, profile, origin })
    }

    async fn ask(&self, method: &str, path: &str, body: &Value) -> Value {
        send(self.driver, method, &format!("/session/{}{path}", self.session), body).await
    }

    /// Opens a path of the daemon, and waits until its script has run.
    pub(super) async fn open(&self, path: &str) {
        self.open_url(&format!("{}{path}", self.origin)).await;
        self.wait("the script of the page", "document.body.dataset.ready === 'yes'").await;
    }

    pub(super) async fn open_url(&self, url: &str) {
        self.ask("POST", "/url", &json!({"url": url})).await;
    }

    pub(super) async fn back(&self) {
        self.ask("POST", "/back", &json!({})).await;
    }

    /// Returns the tab that commands go to.
    pub(super) async fn tab(&self) -> Value {
        self.ask("GET", "/window", &json!({})).await
    }

    /// Opens another tab in front of the others; commands go to it.
    pub(super) async fn open_tab(&self) {
        let tab = self.ask("POST", "/window/new", &json!({"type": "tab"})).await;
        self.show_tab(&tab["handle"]).await;
    }

    pub(super) async fn show_tab(&self, tab: &Value) {
        self.ask("POST", "/window", &json!({"handle": tab})).await;
    }

    /// Returns the path and query of the page.
    pub(super) async fn path(&self) -> String {
        self.eval("location.pathname + location.search").await.as_str().unwrap().to_owned()
    }

    /// Returns the value of an expression in the page.
    pub(super) async fn eval(&self, expression: &str) -> Value {
        self.ask("POST", "/execute/sync", &json!({"script": format!("return ({expression})"), "args": []})).await
    }

    /// Runs a script that calls its last argument with the result.
    pub(super) async fn eval_later(&self, script: &str) -> Value {
        self.ask("POST", "/execute/async", &json!({"script": script, "args": []})).await
    }

    /// Waits until an expression is true; a page that is being loaded is not.
    pub(super) async fn wait(&self, what: &str, expression: &str) {
        eventually(TIMEOUT, what, async || self.eval(&format!("!!({expression})")).await == true).await;
    }

    /// Waits for a new page at a path that begins with `path`.
    pub(super) async fn wait_for(&self, path: &str) {
        let ready = "document.body && document.body.dataset.ready === 'yes'";
        self.wait(path, &format!("{ready} && (location.pathname + location.search).startsWith({})", json!(path))).await;
    }

    /// Presses keys, one after the other. `\u{E007}` is Enter, `\u{E004}` is Tab.
    pub(super) async fn keys(&self, text: &str) {
        let press = |key: char| [json!({"type": "keyDown", "value": key}), json!({"type": "keyUp", "value": key})];
        let actions: Vec<Value> = text.chars().flat_map(press).collect();
        let body = json!({"actions": [{"type": "key", "id": "keyboard", "actions": actions}]});
        self.ask("POST", "/actions", &body).await;
    }

    /// Sets the size of the page in CSS pixels, and the theme.
    pub(super) async fn look(&self, width: u32, height: u32, theme: &str) {
        let size = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        self.command("Emulation.setDeviceMetricsOverride", size).await;
        let features = json!({"features": [{"name": "prefers-color-scheme", "value": theme}]});
        self.command("Emulation.setEmulatedMedia", features).await;
    }

    /// Sends a command of the DevTools protocol.
    pub(super) async fn command(&self, name: &str, parameters: Value) -> Value {
        self.ask("POST", "/goog/cdp/execute", &json!({"cmd": name, "params": parameters})).await
    }

    /// Returns the messages of the console since the last call: violations of the policy, errors of scripts.
    pub(super) async fn complaints(&self) -> Vec<String> {
        let log = self.ask("POST", "/se/log", &json!({"type": "browser"})).await;
        let entries = log.as_array().unwrap().iter().filter(|entry| entry["level"] == "SEVERE");
        entries.map(|entry| entry["message"].as_str().unwrap().to_owned()).collect()
    }
}

/// Starts chromedriver on a free port. It picks one that is free for IPv6, and gives up if IPv4 uses it. Its temporary
/// files and those of the browser stay in `folder`: neither removes them when it is killed.
async fn start_driver(folder: &Path) -> (Process, SocketAddr) {
    const ATTEMPTS: usize = 10;
    let mut errors = Vec::new();
    for _ in 0..ATTEMPTS {
        let mut command = Command::new("chromedriver");
        command.arg("--port=0").env("TMPDIR", folder);
        let mut process = Process::spawn(command).unwrap();
        match process.wait_for_line(TIMEOUT, |line| line.contains("successfully on port")).await {
            Ok(line) => {
                let port = line.trim_end_matches('.').rsplit(' ').next().unwrap().parse::<u16>().unwrap();
                return (process, SocketAddr::from(([127, 0, 0, 1], port)));
            }
            Err(error) => errors.push(error.to_string()),
        }
    }
    panic!("chromedriver does not start: {errors:?}");
}

/// Sends one WebDriver command and returns its value. A refused command is its error, which equals nothing expected.
async fn send(address: SocketAddr, method: &str, path: &str, body: &Value) -> Value {
    let exchange = async {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let body = if method == "GET" { String::new() } else { body.to_string() };
        let length = body.len();
        let head = format!("{method} {path} HTTP/1.1\r\nhost: {address}\r\ncontent-length: {length}\r\n\r\n");
        stream.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
        let (mut reader, mut line, mut length) = (BufReader::new(stream), String::new(), 0);
        while reader.read_line(&mut line).await.unwrap() > 2 {
            if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
            line.clear();
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).await.unwrap();
        serde_json::from_slice::<Value>(&body).unwrap()["value"].clone()
    };
    tokio::time::timeout(TIMEOUT.max(Duration::from_secs(120)), exchange).await.expect("chromedriver must answer")
}
