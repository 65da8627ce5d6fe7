//! Accounts on a private moto server, created with boto3.

use landfall_testkit::servers::{Moto, python_sqs};

pub(crate) struct Accounts {
    endpoint: String,
    administrator: Key,
    pub(crate) shop: Key,
}

pub(crate) struct Key {
    pub(crate) key: String,
    pub(crate) secret: String,
}

impl Accounts {
    /// Creates the accounts and turns authentication on. The account `shop` may do everything with queues.
    pub(crate) async fn create(server: &Moto) -> Self {
        let endpoint = server.endpoint();
        let created: serde_json::Value = serde_json::from_str(&run(&["create", &endpoint]).await).unwrap();
        let key = |name: &str| {
            let text = |part: &str| created[name][part].as_str().unwrap().to_owned();
            Key { key: text("key"), secret: text("secret") }
        };
        Self { administrator: key("administrator"), shop: key("shop"), endpoint }
    }

    /// Restricts the account `shop` to these `actions`.
    pub(crate) async fn allow(&self, actions: &[&str]) {
        let Key { key, secret } = &self.administrator;
        run(&[&["allow", &self.endpoint, key, secret], actions].concat()).await;
    }
}

async fn run(arguments: &[&str]) -> String {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/accounts/accounts.py");
    let output =
        tokio::process::Command::new(python_sqs().unwrap()).arg(script).args(arguments).output().await.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}
