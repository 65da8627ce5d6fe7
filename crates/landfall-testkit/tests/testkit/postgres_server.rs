//! The private PostgreSQL server: crashes, restarts and cleanup.

use std::time::Duration;

use landfall_testkit::servers::{PostgresServer, fresh_postgres_database, private_postgres};
use landfall_testkit::{Process, eventually};
use sqlx::{Connection, PgConnection};

#[tokio::test]
async fn each_call_creates_an_empty_database() {
    let (Some(one), Some(two)) = (fresh_postgres_database().await, fresh_postgres_database().await) else { return };
    assert_ne!(one, two);
    let mut connection = PgConnection::connect(&one).await.unwrap();
    sqlx::query("CREATE TABLE only_here (id integer)").execute(&mut connection).await.unwrap();
    let mut other = PgConnection::connect(&two).await.unwrap();
    assert!(sqlx::query("SELECT * FROM only_here").execute(&mut other).await.is_err());
}

#[tokio::test]
async fn committed_data_survives_sigkill() {
    let Some(server) = private_postgres().await else { return };
    let url = server.fresh_database().await.unwrap();
    let mut connection = PgConnection::connect(&url).await.unwrap();
    sqlx::query("CREATE TABLE kept AS SELECT 42 AS answer").execute(&mut connection).await.unwrap();

    server.kill_9().await.unwrap();
    assert!(sqlx::query("SELECT 1").execute(&mut connection).await.is_err());
    assert!(PgConnection::connect(&url).await.is_err());

    server.restart().await.unwrap();
    let mut connection = PgConnection::connect(&url).await.unwrap();
    let answer: i32 = sqlx::query_scalar("SELECT answer FROM kept").fetch_one(&mut connection).await.unwrap();
    assert_eq!(answer, 42);
}

#[tokio::test]
async fn committed_data_survives_every_stop_mode() {
    let Some(server) = private_postgres().await else { return };
    let url = server.fresh_database().await.unwrap();
    for number in 1..=2 {
        let mut connection = PgConnection::connect(&url).await.unwrap();
        let create = sqlx::AssertSqlSafe(format!("CREATE TABLE kept_{number} (n integer)"));
        sqlx::query(create).execute(&mut connection).await.unwrap();
        match number {
            1 => server.stop().await.unwrap(),
            _ => server.stop_immediately().await.unwrap(),
        }
        assert!(PgConnection::connect(&url).await.is_err());
        server.restart().await.unwrap();
    }
    let mut connection = PgConnection::connect(&url).await.unwrap();
    sqlx::query("SELECT * FROM kept_1, kept_2").execute(&mut connection).await.unwrap();
}

#[tokio::test]
async fn paused_server_answers_only_after_resume() {
    let Some(server) = private_postgres().await else { return };
    let mut connection = PgConnection::connect(&server.url("postgres")).await.unwrap();
    server.pause().await.unwrap();
    let mut answer = tokio::spawn(async move { sqlx::query("SELECT 1").execute(&mut connection).await });
    assert!(tokio::time::timeout(Duration::from_millis(300), &mut answer).await.is_err());
    server.resume().await.unwrap();
    answer.await.unwrap().unwrap();
}

#[tokio::test]
async fn dropped_server_leaves_no_process_or_folder() {
    let Some(server) = private_postgres().await else { return };
    let mut connection = PgConnection::connect(&server.url("postgres")).await.unwrap();
    let folder: String = sqlx::query_scalar("SHOW data_directory").fetch_one(&mut connection).await.unwrap();
    let port = server.port();
    drop(server);
    assert!(tokio::net::TcpStream::connect(("127.0.0.1", port)).await.is_err());
    eventually(Duration::from_secs(60), "the folder is removed", async || !std::path::Path::new(&folder).exists())
        .await;
}

/// Prints the port and folder of its server, then waits.
#[tokio::test]
#[ignore = "runs as a child process that another test starts and kills"]
async fn child_with_a_server() {
    let server = PostgresServer::start().await.unwrap();
    let mut connection = PgConnection::connect(&server.url("postgres")).await.unwrap();
    let folder: String = sqlx::query_scalar("SHOW data_directory").fetch_one(&mut connection).await.unwrap();
    println!("\nserver {} {folder}", server.port());
    std::future::pending::<()>().await;
}

#[tokio::test]
async fn server_does_not_outlive_a_killed_process() {
    if private_postgres().await.is_none() {
        return;
    }
    let mut command = tokio::process::Command::new(std::env::current_exe().unwrap());
    command.args(["--ignored", "--exact", "postgres_server::child_with_a_server", "--nocapture"]);
    let mut victim = Process::spawn(command).unwrap();
    let line = victim.wait_for_line(Duration::from_secs(60), |line| line.starts_with("server ")).await.unwrap();
    let words: Vec<&str> = line.split(' ').collect();
    let (port, folder) = (words[1].parse::<u16>().unwrap(), words[2]);
    tokio::net::TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    assert!(std::path::Path::new(folder).parent().unwrap().exists());

    victim.kill_9().await.unwrap();
    eventually(Duration::from_secs(60), "the server and its folder are gone", async || {
        let is_listening = tokio::net::TcpStream::connect(("127.0.0.1", port)).await.is_ok();
        !is_listening && !std::path::Path::new(folder).parent().unwrap().exists()
    })
    .await;
}

#[tokio::test]
async fn stopped_server_leaves_no_folder_when_dropped() {
    let Some(server) = private_postgres().await else { return };
    let mut connection = PgConnection::connect(&server.url("postgres")).await.unwrap();
    let folder: String = sqlx::query_scalar("SHOW data_directory").fetch_one(&mut connection).await.unwrap();
    server.kill_9().await.unwrap();
    assert!(std::path::Path::new(&folder).exists(), "the folder of a stopped server must stay for a restart");
    drop(server);
    assert!(!std::path::Path::new(&folder).parent().unwrap().exists());
}

#[tokio::test]
async fn leftover_databases_on_an_external_server_are_removed() {
    let Some(server) = private_postgres().await else { return };
    let mut connection = PgConnection::connect(&server.url("postgres")).await.unwrap();
    // A name generated in 2020.
    let old = "landfall_test_0170000000007000800000000000abcd";
    sqlx::query(sqlx::AssertSqlSafe(format!("CREATE DATABASE {old}"))).execute(&mut connection).await.unwrap();
    let recent = server.fresh_database().await.unwrap();
    let recent = recent.rsplit('/').next().unwrap();

    let mut command = tokio::process::Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "postgres_server::each_call_creates_an_empty_database"]);
    command.env("LANDFALL_TEST_POSTGRES_URL", server.url("postgres"));
    assert!(Process::spawn(command).unwrap().wait(Duration::from_secs(60)).await.unwrap().success());

    let names: Vec<String> = sqlx::query_scalar("SELECT datname FROM pg_database WHERE datname LIKE 'landfall%'")
        .fetch_all(&mut connection)
        .await
        .unwrap();
    assert!(!names.iter().any(|name| name == old), "{names:?}");
    assert!(names.iter().any(|name| name == recent), "{names:?}");
    assert_eq!(names.len(), 3, "the child created two more: {names:?}");
}
