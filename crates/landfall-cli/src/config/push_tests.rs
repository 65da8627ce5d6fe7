use super::super::Environment;
use super::*;

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

fn read(text: &str) -> Result<Vec<Subscription>, String> {
    let document: toml::Table = toml::from_str(text).unwrap();
    let given = Given::Toml(document["subscription"].clone());
    let environment = Environment::new([("MAILER".to_owned(), SECRET.to_owned())]);
    subscriptions(&Value { given: &given, environment: &environment }).map_err(|Problem(rest)| rest)
}

fn with(lines: &str) -> String {
    format!("[[subscription]]\ntopic = \"orders\"\ngroup = \"mailer\"\nurl = \"https://example.com/in\"\n{lines}\n")
}

#[test]
fn subscription_needs_only_topic_group_and_url() {
    let found = read(&with("")).unwrap();
    assert_eq!((found.len(), found[0].url.to_string()), (1, "https://example.com/in".to_owned()));
    assert_eq!((found[0].concurrency, found[0].timeout, found[0].keys.len()), (8, Duration::from_secs(10), 0));
    assert_eq!((found[0].letter_topic, found[0].retry_lane), (false, RetryLane::Broker));
}

#[test]
fn every_subscription_field_is_read() {
    let lines = "secret = [\"env:MAILER\", \"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\"]\nconcurrency = 2\n\
                 timeout_ms = 500\nmax_attempts = 3\nbackoff_first_ms = 10\nbackoff_cap_ms = 20\nletter_topic = true\n\
                 retry_lane = \"database\"";
    let one = read(&with(lines)).unwrap().remove(0);
    let key = SigningKey::new(SECRET).unwrap();
    assert_eq!((one.keys.as_slice(), one.concurrency), ([key.clone(), key].as_slice(), 2));
    assert_eq!((one.timeout.as_millis(), one.backoff.max_attempts, one.backoff.cap.as_millis()), (500, 3, 20));
    assert_eq!((one.letter_topic, one.retry_lane), (true, RetryLane::Database));
    assert!(!format!("{one:?}").contains("MfKQ"), "a secret is never printed");
}

#[test]
fn subscription_errors_name_the_field_and_hide_secrets() {
    let twice = with("") + &with("");
    let url = |url: &str| format!("[[subscription]]\ntopic = \"a\"\ngroup = \"b\"\nurl = \"{url}\"");
    for (text, expected) in [
        ("[[subscription]]\ngroup = \"b\"", "[0] needs a topic"),
        ("[[subscription]]\ntopic = \"a\"\ngroup = \"b\"", "[0] needs a url"),
        (&url("ftp://example.com"), "[0].url must begin with https:// or http://"),
        (&url("/in"), "[0].url must begin with https:// or http:// and a host"),
        (&url("https://me:s3cret@example.com"), "[0].url must not contain a user or a password"),
        (&url("http://example.com:99999/in"), "[0].url must have a port from 1 to 65535, or none"),
        (&url("http://[::1]:65536"), "[0].url must have a port from 1 to 65535, or none"),
        (&url("http://example.com:0/"), "[0].url must have a port from 1 to 65535, or none"),
        (&url("env:NOWHERE"), "[0].url points at the environment variable \"NOWHERE\", which is not set"),
        (&with("secret = \"s3cret\""), "[0].secret must be whsec_ and 24 to 64 bytes in base64"),
        (&with("secret = 5"), "[0].secret must be a string, not an integer"),
        (&with("concurrency = 0"), "[0].concurrency must be a whole number from 1 to 1000, not 0"),
        (&with("backoff_first_ms = 90000"), "[0].backoff_first_ms is greater than backoff_cap_ms"),
        (&with("letter_topic = 1"), "[0].letter_topic must be true or false, not an integer"),
        (&with("retry_lane = \"disk\""), "[0].retry_lane must be broker, topic or database, not \"disk\""),
        (&with("timeout = 5"), "[0] has the unknown key \"timeout\"; did you mean \"timeout_ms\"?"),
        (&twice, "[1] subscribes the group mailer to orders a second time"),
    ] {
        let error = read(text).unwrap_err();
        assert!(error.starts_with(expected), "{error}");
        assert!(!error.contains("s3cret"), "{error}");
    }
}
