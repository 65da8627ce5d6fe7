//! Every key of the configuration, in the order of `config/default.toml`.
//!
//! One line declares a key: its path, type, range and field. No other code needs to know the key.

use std::path::PathBuf;
use std::time::Duration;

use super::value::{Problem, Value};
use super::{Acknowledge, Config, LogFormat, Order, WhenExhausted};
use crate::units;

/// One key: its path `section.name`, and the function that stores a value in the configuration.
pub(super) struct Key {
    pub(super) path: &'static str,
    pub(super) set: fn(&mut Config, &Value<'_>) -> Result<(), Problem>,
}

const HOUR_MS: u64 = 3_600_000;
const LOG_FORMATS: [(&str, LogFormat); 2] = [("text", LogFormat::Text), ("json", LogFormat::Json)];

const SCHEMES: [(&str, &str); 2] = [("http", "http"), ("https", "https")];

const ORDERS: [(&str, Order); 2] = [("key", Order::Key), ("none", Order::None)];

const EXHAUSTED: [(&str, WhenExhausted); 2] = [("hold", WhenExhausted::Hold), ("skip", WhenExhausted::Skip)];

/// The last two are what the levels mean in the embedded log.
const LEVELS: [(&str, Acknowledge); 5] = [
    ("none", Acknowledge::None),
    ("leader", Acknowledge::Leader),
    ("all", Acknowledge::All),
    ("written", Acknowledge::Leader),
    ("synced", Acknowledge::All),
];

macro_rules! keys {
    ($($path:literal => $($field:ident).+ = |$value:ident| $read:expr;)*) => {
        const KEYS: &[Key] = &[$(Key {
            path: $path,
            set: |config, $value| {
                config.$($field).+ = $read;
                Ok(())
            },
        }),*];
    };
}

keys! {
    "import"                   => import = |value| super::import::read(value)?;
    "subscription"             => subscription = |value| super::push::subscriptions(value)?;
    "idempotent_route"         => idempotent_route = |value| super::idempotent_route::read(value)?;
    "alert"                    => alerts.rules = |value| super::alert::rules(value)?;
    "alert_channel"            => alerts.channels = |value| super::alert::channels(value)?;
    "database.url"             => database.url = |value| value.address()?;
    "database.prefix"          => database.prefix = |value| value.parsed()?;
    "database.max_connections" => database.max_connections = |value| value.whole(1, 1000)? as u32;
    "database.auto_migrate"    => database.auto_migrate = |value| value.flag()?;
    "broker.url"               => broker.url = |value| value.address()?;
    "broker.partitions"        => broker.partitions = |value| some(value.whole(0, 1024)?);
    "broker.acknowledge"       => broker.acknowledge = |value| value.one_of(&LEVELS)?;
    "broker.flush"             => broker.flush = |value| value.amount(units::flush)?;
    "broker.retention"         => broker.topic.retention_time = |value| value.amount(units::retention)?.0;
    "broker.retention_bytes"   => broker.topic.retention_bytes = |value| value.amount(units::retention_bytes)?.0;
    "broker.may_drop_unread"   => broker.topic.may_drop_unread = |value| value.flag()?;
    "broker.deduplicate"       => broker.topic.deduplicate = |value| value.flag()?;
    "relay.batch"              => relay.batch = |value| value.whole(1, 10_000)? as usize;
    "relay.lease_ms"           => relay.lease = |value| millis(value, 500, HOUR_MS)?;
    "relay.poll_max_ms"        => relay.poll_max = |value| millis(value, 10, HOUR_MS)?;
    "relay.backoff_first_ms"   => relay.backoff.first = |value| millis(value, 1, 24 * HOUR_MS)?;
    "relay.backoff_cap_ms"     => relay.backoff.cap = |value| millis(value, 1, 24 * HOUR_MS)?;
    "relay.max_attempts"       => relay.backoff.max_attempts = |value| value.whole(1, 1_000_000)? as u32;
    "relay.order"              => relay.order = |value| value.one_of(&ORDERS)?;
    "relay.when_exhausted"     => relay.when_exhausted = |value| value.one_of(&EXHAUSTED)?;
    "push.allow_private_addresses" => push.rules.allow_private_addresses = |value| value.flag()?;
    "push.allowed_hosts"       => push.rules.allowed_hosts = |value| super::push::hosts(value)?;
    "push.ca_file"             => push.ca_file = |value| value.text()?.to_owned();
    "check_back.interval_ms"   => check_back.interval = |value| millis(value, 10, HOUR_MS)?;
    "check_back.immunity_ms"   => check_back.immunity = |value| millis(value, 0, 24 * HOUR_MS)?;
    "check_back.timeout_ms"    => check_back.timeout = |value| millis(value, 1, HOUR_MS)?;
    "check_back.backoff_first_ms" => check_back.backoff.first = |value| millis(value, 1, 24 * HOUR_MS)?;
    "check_back.backoff_cap_ms" => check_back.backoff.cap = |value| millis(value, 1, 24 * HOUR_MS)?;
    "check_back.max_checks"    => check_back.backoff.max_attempts = |value| value.whole(1, 1_000_000)? as u32;
    "check_back.concurrency"   => check_back.concurrency = |value| value.whole(1, 1000)? as usize;
    "check_back.allow_private_addresses" => check_back.rules.allow_private_addresses = |value| value.flag()?;
    "check_back.allowed_hosts" => check_back.rules.allowed_hosts = |value| super::push::hosts(value)?;
    "check_back.secret"        => check_back.keys = |value| super::push::signing_keys(value)?;
    "check_back.databases"     => check_back.databases = |value| super::check_back::databases(value)?;
    "check_back.services"      => check_back.services = |value| super::check_back::services(value)?;
    "check_back.srv_name"      => check_back.srv.name = |value| super::check_back::srv_name(value)?;
    "check_back.srv_scheme"    => check_back.srv.scheme = |value| value.one_of(&SCHEMES)?;
    "check_back.srv_servers"   => check_back.srv.servers = |value| super::check_back::srv_servers(value)?;
    "check_back.shard"         => check_back.shards = |value| super::check_back::shards(value)?;
    "check_back.topic"         => check_back.topic = |value| super::check_back::topic(value)?;
    "alerts.interval_ms"       => alerts.interval = |value| millis(value, 100, HOUR_MS)?;
    "alerts.link_base"         => alerts.link_base = |value| super::alert::link_base(value)?;
    "alerts.allow_private_addresses" => alerts.push.rules.allow_private_addresses = |value| value.flag()?;
    "alerts.allowed_hosts"     => alerts.push.rules.allowed_hosts = |value| super::push::hosts(value)?;
    "alerts.ca_file"           => alerts.push.ca_file = |value| value.text()?.to_owned();
    "redrive.limit"            => redrive.guards.max_redrives = |value| value.whole(1, 1_000_000)? as u32;
    "redrive.cool_down"        => redrive.guards.cool_down = |value| rest(value)?;
    "redrive.block_after"      => redrive.guards.block_after = |value| value.whole(1, 1_000_000)? as u32;
    "redrive.block_for"        => redrive.guards.block_for = |value| rest(value)?;
    "redrive.stop_percent"     => redrive.stop.failed_percent = |value| value.whole(0, 100)?;
    "redrive.stop_after"       => redrive.stop.at_least = |value| value.whole(1, 1_000_000)?;
    "redrive.stop_on_new_error" => redrive.stop.on_new_fingerprint = |value| value.flag()?;
    "retention.inbox"          => retention.inbox = |value| value.amount(units::span)?;
    "retention.enqueued_ids"   => retention.enqueued_ids = |value| value.amount(units::span)?;
    "retention.sent"           => retention.sent = |value| value.amount(units::span)?;
    "retention.dead_letters"   => retention.dead_letters = |value| value.amount(units::span)?;
    "retention.dead_letters_archive" => retention.dead_letters_archive = |value| super::retention::archive(value)?;
    "retention.redrive"        => retention.redrive = |value| value.amount(units::span)?;
    "retention.redelivery"     => retention.redelivery = |value| value.amount(units::span)?;
    "retention.half_messages"  => retention.half_messages = |value| value.amount(units::span)?;
    "retention.half_messages_archive" => retention.half_messages_archive = |value| path(value)?;
    "retention.barriers"       => retention.barriers = |value| value.amount(units::span)?;
    "retention.idempotency_answers" => retention.idempotency_answers = |value| value.amount(units::span)?;
    "retention.idempotency"    => retention.idempotency = |value| value.amount(units::span)?;
    "retention.alerts"         => retention.alerts = |value| value.amount(units::span)?;
    "retention.redrive_jobs"   => retention.redrive_jobs = |value| value.amount(units::span)?;
    "limits.payload_bytes"     => limits.payload_bytes = |value| value.whole(1, 64 * 1024 * 1024)? as usize;
    "proxy.listen"             => proxy.listen = |value| value.socket_address()?;
    "http.listen"              => http.listen = |value| value.socket_address()?;
    "http.request_timeout_ms"  => http.request_timeout = |value| millis(value, 100, HOUR_MS)?;
    "http.stop_timeout_ms"     => http.stop_timeout = |value| millis(value, 0, HOUR_MS)?;
    "http.certificate_file"    => http.certificate_file = |value| value.text()?.to_owned();
    "http.key_file"            => http.key_file = |value| value.text()?.to_owned();
    "auth.tokens"              => auth.tokens = |value| super::token::read(value)?;
    "log.level"                => log.level = |value| value.log_level()?;
    "log.format"               => log.format = |value| value.one_of(&LOG_FORMATS)?;
}

fn millis(value: &Value<'_>, least: u64, most: u64) -> Result<Duration, Problem> {
    value.whole(least, most).map(Duration::from_millis)
}

/// Reads how long a letter or a key rests.
fn rest(value: &Value<'_>) -> Result<Duration, Problem> {
    let longest = super::redrive::LONGEST;
    let time = value.amount(units::age)?;
    let is_short = time <= longest;
    is_short.then_some(time).ok_or_else(|| Problem(format!(" must be at most {}", units::format_time(longest))))
}

/// Reads a path; an empty string is none.
fn path(value: &Value<'_>) -> Result<Option<PathBuf>, Problem> {
    let text = value.text()?;
    Ok((!text.is_empty()).then(|| PathBuf::from(text)))
}

/// 0 stands for the default of the broker.
fn some(count: u64) -> Option<u32> {
    u32::try_from(count).ok().filter(|count| *count > 0)
}

pub(super) fn paths() -> impl Iterator<Item = &'static str> {
    KEYS.iter().map(|key| key.path)
}

pub(super) fn find(path: &str) -> Option<&'static Key> {
    KEYS.iter().find(|key| key.path == path)
}

/// Returns each section once.
pub(super) fn sections() -> Vec<&'static str> {
    let mut sections: Vec<_> = paths().filter_map(|path| Some(path.split_once('.')?.0)).collect();
    sections.dedup();
    sections
}

/// Returns the known key most similar to `path`, which may lack its section.
pub(super) fn nearest(path: &str) -> Option<&'static str> {
    let similarity = |known: &&'static str| {
        let name = known.split_once('.').map_or(*known, |(_, name)| name);
        strsim::jaro_winkler(path, known).max(strsim::jaro_winkler(path, name))
    };
    closest(path, paths(), |known| similarity(&known))
}

/// Returns the entry of `known` most similar to `text`, if it is similar enough to suggest.
pub(super) fn closest<'a>(
    text: &str,
    known: impl Iterator<Item = &'a str>,
    similarity: impl Fn(&'a str) -> f64,
) -> Option<&'a str> {
    const MIN_SIMILARITY: f64 = 0.8;
    if text.is_empty() {
        return None;
    }
    known
        .map(|candidate| (similarity(candidate), candidate))
        .filter(|(similarity, _)| *similarity >= MIN_SIMILARITY)
        .max_by(|(one, _), (other, _)| one.total_cmp(other))
        .map(|(_, candidate)| candidate)
}
