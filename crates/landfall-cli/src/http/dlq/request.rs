//! The body of `POST /v1/redrives`, and the parameters of `POST /ops/dlq/redrive`.

use landfall::{DeadLetterId, MessageId, RedriveLane, RedriveOptions, RedriveRequest, RedriveSelection};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value, json};

use super::filter::{Conditions, repeated, unknown};
use super::{MAX_REASON_CHARACTERS, words};
use crate::http::problem::Problem;
use crate::rehearsal::MAX_LETTERS;

/// The most letters that are named one by one.
const MAX_IDS: usize = 100_000;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct Fields {
    pub(in crate::http) filter: Option<Map<String, Value>>,
    pub(in crate::http) ids: Option<Vec<Whole>>,
    pub(in crate::http) lane: Option<String>,
    pub(in crate::http) rate_per_s: Option<Whole>,
    pub(in crate::http) concurrency: Option<Whole>,
    pub(in crate::http) ramp: Option<bool>,
    pub(in crate::http) dry_run: Option<bool>,
    /// Of how many letters the handler is run and rolled back. A request with it is a dry run.
    pub(in crate::http) run: Option<Whole>,
    pub(in crate::http) wait_s: Option<Whole>,
    pub(in crate::http) reason: Option<String>,
    pub(in crate::http) actor: Option<String>,
}

/// The handlers that a dry run runs.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::http) struct Run {
    pub(super) letters: usize,
    pub(super) wait_s: Option<u64>,
}

/// A whole number. JSON does not distinguish `7` and `7.0`.
#[derive(Debug, Clone, Copy)]
pub(in crate::http) struct Whole(pub(in crate::http) i64);

impl<'de> Deserialize<'de> for Whole {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        /// Up to here every whole number is exact.
        const MAX_EXACT: f64 = 9_007_199_254_740_992.0;
        let number = serde_json::Number::deserialize(deserializer)?;
        let whole = |number: f64| (number.fract() == 0.0 && number.abs() <= MAX_EXACT).then_some(number as i64);
        let number = number.as_i64().or_else(|| number.as_f64().and_then(whole));
        number.map(Self).ok_or_else(|| serde::de::Error::custom("a whole number is expected"))
    }
}

impl Whole {
    /// Returns the number, or 0 if it is negative.
    pub(super) fn unsigned(self) -> u64 {
        u64::try_from(self.0).unwrap_or_default()
    }

    /// Returns the number, or one that every check refuses.
    fn small(self) -> u32 {
        u32::try_from(self.0).unwrap_or(0)
    }
}

impl Fields {
    pub(super) fn parse(body: &[u8]) -> Result<Self, Problem> {
        let wrong = |why: &dyn std::fmt::Display| Problem::invalid(format!("the body is not a redrive: {why}"));
        // serde would also accept an array with the values in field order.
        if body.trim_ascii_start().first() != Some(&b'{') {
            return Err(wrong(&"it must be a JSON object with filter or ids"));
        }
        serde_json::from_slice(body).map_err(|error| wrong(&error))
    }

    pub(super) fn handlers_to_run(&self) -> Result<Run, Problem> {
        let letters = self.run.map_or(Ok(0), |Whole(letters)| usize::try_from(letters));
        let Some(letters) = letters.ok().filter(|letters| *letters <= MAX_LETTERS) else {
            return Err(Problem::invalid(format!("run must be a number from 0 to {MAX_LETTERS}")));
        };
        Ok(Run { letters, wait_s: self.wait_s.map(Whole::unsigned) })
    }

    pub(in crate::http) fn into_request(self, given: Option<MessageId>) -> Result<RedriveRequest, Problem> {
        let ids = self.ids.map(|ids| ids.into_iter().map(|Whole(id)| id).collect());
        let (selection, shown) = selection(self.filter, ids)?;
        selection.check()?;
        let lane: RedriveLane = self.lane.as_deref().map(str::parse).transpose()?.unwrap_or_default();
        let mut options = RedriveOptions::new(lane);
        options.rate_per_s = self.rate_per_s.map(Whole::small).or(options.rate_per_s);
        options.concurrency = self.concurrency.map_or(options.concurrency, Whole::small);
        options.ramp = self.ramp.unwrap_or(options.ramp);
        options.check()?;
        let reason = reason(self.reason.as_deref())?;
        Ok(RedriveRequest { selection, options, reason, shown: shown.to_string(), given, expected: None })
    }
}

fn reason(given: Option<&str>) -> Result<String, Problem> {
    given.map_or(Ok(String::new()), |text| words("reason", text, MAX_REASON_CHARACTERS).map(str::to_owned))
}

/// Returns the selection, and the JSON that is shown with the job.
fn selection(
    filter: Option<Map<String, Value>>,
    ids: Option<Vec<DeadLetterId>>,
) -> Result<(RedriveSelection, Value), Problem> {
    match (filter, ids) {
        (Some(filter), None) => {
            let mut conditions = Conditions::default();
            for (name, value) in &filter {
                let text = match value {
                    Value::String(text) => text.clone(),
                    Value::Number(_) if name == "id" => {
                        let id = Whole::deserialize(value).map_err(|error| Problem::invalid(error.to_string()))?;
                        id.0.to_string()
                    }
                    _ => return Err(Problem::invalid(format!("the field filter.{name} must be a string"))),
                };
                if !conditions.add(name, &text)? {
                    return Err(unknown(name));
                }
            }
            let selection = RedriveSelection::Filter(Box::new(conditions.filter(true)));
            Ok((selection, json!({ "filter": filter })))
        }
        (None, Some(ids)) if ids.len() > MAX_IDS => {
            Err(Problem::invalid(format!("ids has {} ids, and the limit is {MAX_IDS}; use a filter", ids.len())))
        }
        (None, Some(ids)) if ids.iter().any(|id| *id < 1) => Err(Problem::invalid("ids must be at least 1")),
        (None, Some(ids)) => {
            let shown = json!({ "ids": ids });
            Ok((RedriveSelection::Ids(ids), shown))
        }
        _ => Err(Problem::invalid("give either filter or ids")),
    }
}

/// Parses the parameters of `/ops/dlq/redrive`. Returns the request and the name of the person.
pub(super) fn from_query(query: &str, given: Option<MessageId>) -> Result<(RedriveRequest, Option<String>), Problem> {
    let mut filter = Map::new();
    let (mut why, mut actor, mut lane) = (None, None, None);
    for (name, value) in form_urlencoded::parse(query.as_bytes()) {
        let value = value.into_owned();
        let is_repeated = match &*name {
            "eventId" => filter.insert("message_id".into(), value.into()).is_some(),
            "aggregateId" => filter.insert("key".into(), value.into()).is_some(),
            "from" | "to" | "topic" | "group" => filter.insert(name.to_string(), value.into()).is_some(),
            "reason" => why.replace(value).is_some(),
            "actor" => actor.replace(value).is_some(),
            "lane" => lane.replace(value).is_some(),
            name => return Err(unknown(name)),
        };
        if is_repeated {
            return Err(repeated(&name));
        }
    }
    let fields = Fields { filter: Some(filter), lane, reason: why, ..Fields::default() };
    Ok((fields.into_request(given)?, actor))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(body: &str) -> Result<RedriveRequest, Problem> {
        Fields::parse(body.as_bytes())?.into_request(None)
    }

    #[test]
    fn lane_sets_the_pace_unless_it_is_given() {
        let slow = request(r#"{"filter": {"topic": "orders"}}"#).unwrap().options;
        assert_eq!((slow.lane, slow.rate_per_s, slow.concurrency, slow.ramp), (RedriveLane::Slow, Some(50), 16, true));
        let body = r#"{"ids": [1, 2.0], "lane": "main", "rate_per_s": 7, "concurrency": 3, "ramp": false}"#;
        let fast = request(body).unwrap();
        assert_eq!((fast.options.rate_per_s, fast.options.concurrency, fast.options.ramp), (Some(7), 3, false));
        assert_eq!(fast.shown, r#"{"ids":[1,2]}"#);
    }

    #[test]
    fn redrive_of_everything_by_mistake_is_refused() {
        for body in [
            "{}",
            r#"{"filter": {}}"#,
            r#"{"filter": {"status": "all"}}"#,
            r#"{"ids": []}"#,
            r#"{"filter": {"topic": "a"}, "ids": [1]}"#,
            r#"{"filter": {"topics": "a"}}"#,
            r#"{"filter": {"topic": 1}}"#,
            r#"{"ids": [0]}"#,
            r#"{"ids": [1], "rate": 1}"#,
            r#"{"ids": [1], "concurrency": 0}"#,
            r#"{"ids": [1], "concurrency": 4294967297}"#,
            r#"{"ids": [1], "rate_per_s": -1}"#,
            r#"{"ids": [1.5]}"#,
            r#"{"ids": [1], "lane": "fast"}"#,
            "[]",
        ] {
            assert!(request(body).is_err(), "{body} was accepted");
        }
        assert!(from_query("", None).is_err() && from_query("reason=x", None).is_err());
        assert!(from_query("eventId=1", None).is_err() && from_query("from=x", None).is_err());
    }

    #[test]
    fn parameters_of_the_operations_route_are_a_filter() {
        let query = "aggregateId=order-7&from=2026-11-18T08:00:00Z&to=2026-11-18T09:00:00Z&actor=maria&reason=fixed";
        let (request, actor) = from_query(query, None).unwrap();
        let RedriveSelection::Filter(filter) = request.selection else { panic!("not a filter") };
        assert_eq!(filter.key.as_ref().map(|key| key.as_str()), Some("order-7"));
        assert!(filter.from.is_some() && filter.to.is_some());
        assert_eq!((request.reason.as_str(), actor.as_deref()), ("fixed", Some("maria")));
    }
}
