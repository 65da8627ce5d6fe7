//! The conformance suites of databases and of database servers, on a real MySQL.

mod fixture;

use fixture::{MySqlFixture, Server};

enum MySqlItself {}

impl Server for MySqlItself {
    async fn fresh_database() -> Option<String> {
        landfall_testkit::servers::fresh_database_on_mysql().await
    }
}

landfall_testkit::database_conformance!(
    MySqlFixture<MySqlItself>,
    without wakes_across_processes: "no `wakes_across_processes`: MySQL has no notifications"
);
landfall_testkit::server_database_conformance!(MySqlFixture<MySqlItself>);

mod idempotency {
    use landfall_testkit::conformance::idempotency::OfDatabase;

    use super::*;

    landfall_testkit::idempotency_conformance!(OfDatabase<MySqlFixture<MySqlItself>>);
}
