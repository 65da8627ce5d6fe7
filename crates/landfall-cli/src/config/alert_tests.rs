use super::super::{Config, Environment};
use super::*;

fn load(text: &str) -> Result<Config> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("landfall.toml");
    std::fs::write(&path, text).unwrap();
    let variables = [("SLACK_URL", "https://hooks.slack.example/services/T0/B0/hidden"), ("DING", "SECdeadbeef")];
    let environment = Environment::new(variables.map(|(name, value)| (name.to_owned(), value.to_owned())));
    Config::load(Some(path), &environment, &[])
}

const CHANNELS: &str = r#"
[[alert_channel]]
name = "ops"
type = "slack"
url = "env:SLACK_URL"
[[alert_channel]]
name = "duty"
type = "dingtalk"
url = "https://oapi.dingtalk.example/robot/send?access_token=hidden"
secret = "env:DING"
keyword = "landfall"
give_up_after = "2h"
[[alert_channel]]
name = "pager"
type = "webhook"
url = "https://pager.example/in"
secret = ["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"]
"#;

#[test]
fn built_in_rules_notify_every_channel() {
    let alerts = load(CHANNELS).unwrap().alerts;
    let rules = alerts.effective_rules();
    assert_eq!(rules.len(), AlertKind::ALL.len());
    assert!(rules.iter().all(|rule| rule.channels == ["ops", "duty", "pager"]), "{rules:?}");
    assert_eq!(alerts.channels[1].give_up_after, Duration::from_secs(7200));
}

#[test]
fn rule_of_the_configuration_replaces_the_built_in_one() {
    let text = format!(
        "{CHANNELS}\n[[alert]]\nrule = \"dead-letter-age\"\nthreshold = \"2h\"\nrepeat = \"forever\"\nquiet = \"10m\"\n\
         channels = [\"pager\"]\n[[alert]]\nrule = \"consumer-lag\"\nname = \"lag-of-billing\"\nthreshold = 50\n\
         for = \"1m\"\ntopic = \"orders\"\ngroup = \"billing\"\n[[alert]]\nrule = \"new-group\"\nenabled = false\n"
    );
    let rules = load(&text).unwrap().alerts.effective_rules();
    let find = |name: &str| rules.iter().find(|rule| rule.name == name);
    let age = find("dead-letter-age").unwrap();
    assert_eq!((age.threshold, age.repeat, age.quiet), (7200, None, Duration::from_secs(600)));
    assert_eq!(age.channels, ["pager"]);
    let lag = find("lag-of-billing").unwrap();
    assert_eq!((lag.threshold, lag.hold_for, lag.channels.len()), (50, Duration::from_secs(60), 3));
    assert!(find("consumer-lag").is_some() && find("new-group").is_none());
}

#[test]
fn mistake_is_explained_and_no_secret_is_repeated() {
    let channel = "[[alert_channel]]\nname = \"ops\"\n";
    for (text, expected) in [
        ("[[alert]]\nrule = \"dead-leter\"", r#"alert[0].rule "dead-leter" is unknown; did you mean "dead-letter"?"#),
        ("[[alert]]\nname = \"x\"", "alert[0] needs a rule: dead-letter, new-group"),
        ("[[alert]]\nrule = \"outbox-age\"\ntreshold = 1", r#"unknown key "treshold"; did you mean "threshold"?"#),
        ("[[alert]]\nrule = \"outbox-age\"\nthreshold = \"long\"", "alert[0].threshold must be a time such as 7d"),
        ("[[alert]]\nrule = \"outbox-age\"\ntopic = \"orders\"", "which has no topic and no group"),
        ("[[alert]]\nrule = \"dead-letter\"\nthreshold = -1", "alert[0].threshold must be a whole number"),
        ("[[alert]]\nrule = \"new-group\"\n[[alert]]\nrule = \"new-group\"", "[1] is a second rule \"new-group\""),
        (&format!("{CHANNELS}[[alert]]\nrule = \"new-group\"\nchannels = [\"opss\"]"), "did you mean \"ops\"?"),
        (&format!("{channel}url = \"https://a.example\""), "alert_channel[0] needs a type: webhook, slack or dingtalk"),
        (&format!("{channel}type = \"irc\""), ".type must be webhook, slack or dingtalk, not \"irc\""),
        (&format!("{channel}type = \"slack\"\nurl = \"hidden\""), "alert_channel[0].url must begin with https://"),
        (&format!("{channel}type = \"slack\"\nsecret = \"hidden\"\nurl = \"https://a.example\""), "has a secret"),
        (&format!("{channel}type = \"webhook\"\nsecret = \"hidden\""), ".secret must be whsec_"),
        ("[[alert_channel]]\nname = \"a b\"\ntype = \"slack\"", ".name must have 1 to 64 letters"),
        ("[alerts]\nlink_base = \"console\"", "alerts.link_base must begin with https:// or http://"),
    ] {
        let error = load(text).unwrap_err().to_string();
        assert!(error.contains(expected), "{text}\n{error}");
        assert!(!error.contains("hidden"), "{error}");
    }
    let shown = format!("{:?}", load(CHANNELS).unwrap());
    assert!(!shown.contains("hidden") && !shown.contains("SECdead"), "{shown}");
    assert!(shown.contains("https://hooks.slack.example/***"), "{shown}");
}
