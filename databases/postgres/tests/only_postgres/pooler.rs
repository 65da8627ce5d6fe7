//! Through PgBouncer in transaction mode: every statement may meet another connection of the server.

use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use landfall_core::{
    Admission, Database, DeadLetterFilter, DeadLetters, Decision, ErrorCode, GroupName, Housekeeping, Inbox, Leases,
    OutboxControl, OutboxFilter, OutboxQueue, OutboxView, Schema,
};
use landfall_postgres::{Options, Postgres};
use landfall_testkit::servers::fresh_postgres_database;
use landfall_testkit::{eventually, not_run};

use crate::stage::{LONG, SOON, lease_all, message, publish_everything, settlement};

/// A PgBouncer in front of the test server, stopped at the end.
struct Pooler {
    process: Child,
    url: String,
    _folder: tempfile::TempDir,
}

impl Drop for Pooler {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// `None`, after saying so, if there is no server or no PgBouncer.
async fn pooler() -> Option<Pooler> {
    let url = fresh_postgres_database().await?;
    let Some(binary) = ["/usr/sbin/pgbouncer", "/usr/bin/pgbouncer"].into_iter().find(|path| Path::new(path).exists())
    else {
        not_run("pooler", "there is no PgBouncer on this machine");
        return None;
    };
    let target: sqlx::postgres::PgConnectOptions = url.parse().unwrap();
    let (host, server_port, user) = (target.get_host(), target.get_port(), target.get_username());
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let folder = tempfile::tempdir().unwrap();
    let settings = folder.path().join("pgbouncer.ini");
    // Fewer connections than clients, so that they are really shared.
    let text = format!(
        "[databases]\n* = host={host} port={server_port} user={user}\n[pgbouncer]\nlisten_addr = 127.0.0.1\n\
         listen_port = {port}\nauth_type = any\npool_mode = transaction\ndefault_pool_size = 2\n\
         max_client_conn = 100\nunix_socket_dir =\n"
    );
    std::fs::write(&settings, text).unwrap();
    std::fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let mut command = Command::new(binary);
    if nix_is_root() {
        // It refuses to be root.
        command.args(["-u", "nobody"]);
    }
    let process = command.arg(&settings).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let database = target.get_database().unwrap().to_owned();
    let url = format!("postgres://{user}@127.0.0.1:{port}/{database}?pooler=transaction");
    Some(Pooler { process, url, _folder: folder })
}

fn nix_is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0)
}

async fn connect(pooler: &Pooler) -> Postgres {
    let mut connected = None;
    eventually(SOON, "the pooler answers", async || {
        let options = Options { max_connections: 6, ..Options::default() };
        connected = Postgres::connect(&pooler.url, options).await.ok();
        connected.is_some()
    })
    .await;
    connected.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_works_through_a_pooler_in_transaction_mode() {
    let Some(pooler) = pooler().await else { return };
    let database = connect(&pooler).await;
    assert!(database.migrate().await.unwrap());
    database.check().await.unwrap();
    let leases = lease_all(&database, "one", LONG).await;
    let mut writers = tokio::task::JoinSet::new();
    for writer in 0..8 {
        let database = if writer % 2 == 0 { database.clone() } else { connect(&pooler).await };
        writers.spawn(async move {
            for n in 1..=20 {
                database.append(&[message(&format!("k{writer}"), n), message("shared", n)]).await.unwrap();
            }
        });
    }
    let mut sent = Vec::new();
    while sent.len() < 320 {
        assert_eq!(database.renew(&leases, LONG).await.unwrap().len(), leases.len());
        let entries = database.next(&leases, 50).await.unwrap();
        let settlements: Vec<_> = entries.iter().map(|entry| settlement(entry, Decision::Published)).collect();
        assert_eq!(database.settle(&leases, &settlements).await.unwrap().len(), entries.len());
        sent.extend(entries.into_iter().map(|entry| entry.message.unwrap()));
        while let Some(ended) = writers.try_join_next() {
            ended.unwrap();
        }
        tokio::task::yield_now().await;
    }
    for writer in 0..8 {
        let key = format!("k{writer}");
        let of_key = sent.iter().filter(|message| message.key.as_ref().is_some_and(|found| found.as_str() == key));
        let numbers: Vec<_> = of_key.filter_map(|message| message.sequence).collect();
        assert_eq!(numbers, (1..=20).collect::<Vec<_>>(), "{key}");
    }
    what_fails_is_handled_too(&database).await;
}

async fn what_fails_is_handled_too(database: &Postgres) {
    let leases = lease_all(database, "one", LONG).await;
    database.append(&[message("a", 1), message("b", 1)]).await.unwrap();
    let entries = database.next(&leases, 10).await.unwrap();
    let park = Decision::Park { code: ErrorCode::TOO_LARGE, error: "too large".into(), holds_key: true };
    let retry = Decision::Retry { after: LONG, error: "busy".into() };
    let settlements = [settlement(&entries[0], park), settlement(&entries[1], retry)];
    assert_eq!(database.settle(&leases, &settlements).await.unwrap().len(), 2);
    assert_eq!(database.list(&OutboxFilter::default(), 10).await.unwrap().len(), 1);
    assert_eq!(database.retry(&[entries[1].row], "alice").await.unwrap(), [entries[1].row]);
    assert_eq!(database.redrive(&DeadLetterFilter::default(), "alice").await.unwrap().redriven.len(), 1);
    assert_eq!(database.find(&DeadLetterFilter::default(), 10).await.unwrap().len(), 1);
    assert_eq!(publish_everything(database, &leases).await.len(), 2);
    assert_eq!(database.stats().await.unwrap().published, 322);

    let (stock, handled) = (GroupName::new("stock").unwrap(), message("a", 1));
    for expected in [Admission::Fresh, Admission::Duplicate] {
        let mut transaction = database.begin().await.unwrap();
        assert_eq!(database.admit(&mut transaction, &stock, &handled, None).await.unwrap(), expected);
        database.commit(transaction).await.unwrap();
    }
    assert_eq!(database.forget_handled(LONG, 10).await.unwrap(), 0);
    database.rotate().await.unwrap();
    database.release(&leases).await.unwrap();
}

#[tokio::test]
async fn another_word_for_the_pooler_is_refused() {
    let error = Postgres::connect("postgres://h/x?pooler=session", Options::default()).await.unwrap_err();
    assert_eq!(error.kind(), landfall_core::ErrorKind::Invalid);
    assert!(error.to_string().contains("pooler=transaction"), "{error}");
}
