//! What every database must do, on MySQL itself.

mod fixture;

use fixture::{MySqlFixture, Server};

enum MySqlItself {}

impl Server for MySqlItself {
    async fn fresh_database() -> Option<String> {
        landfall_testkit::servers::fresh_database_on_mysql().await
    }
}

landfall_testkit::database_conformance!(MySqlFixture<MySqlItself>);
