//! Real servers for tests, private to the test process: own port, own folder, removed when the process ends.

mod account;
mod certificates;
mod daemon;
mod kafka;
mod mariadb;
mod names;
mod nats;
mod pgbouncer;
mod postgres;
mod rabbitmq;
mod redis;
mod s3;
mod shared_server;
mod sqs;
mod watchdog;

pub use certificates::Certificates;
pub use daemon::services_folder;
pub use kafka::{KafkaCluster, KafkaOptions, KafkaServer};
pub use mariadb::{
    MariaDbOptions, MariaDbServer, fresh_database_on_mysql, fresh_mysql_database, mariadb, private_mariadb,
    private_mariadb_with,
};
pub use nats::{NatsOptions, NatsServer};
pub use pgbouncer::PgBouncer;
pub use postgres::{PostgresOptions, PostgresServer, fresh_postgres_database, postgres, private_postgres};
pub use rabbitmq::{RabbitMqOptions, RabbitMqServer};
pub use redis::{RedisOptions, RedisServer};
pub use s3::{S3Server, StorageFault};
pub use shared_server::{ExclusiveGuard, SharedGuard, SharedServer};
pub use sqs::{ElasticMq, Moto, python_sqs};
