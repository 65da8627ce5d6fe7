//! The conformance suites of databases and of database servers, on a real MariaDB, or on the server that
//! `LANDFALL_TEST_MYSQL_URL` names.

mod fixture;

use fixture::{MySqlFixture, Server};

enum MariaDb {}

impl Server for MariaDb {
    async fn fresh_database() -> Option<String> {
        landfall_testkit::servers::fresh_mysql_database().await
    }
}

landfall_testkit::database_conformance!(
    MySqlFixture<MariaDb>,
    without wakes_across_processes: "no `wakes_across_processes`: MySQL has no notifications"
);
landfall_testkit::server_database_conformance!(MySqlFixture<MariaDb>);

mod idempotency {
    use landfall_testkit::conformance::idempotency::OfDatabase;

    use super::*;

    landfall_testkit::idempotency_conformance!(OfDatabase<MySqlFixture<MariaDb>>);
}
