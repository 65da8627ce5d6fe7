//! The metric names that dashboards use.

use landfall::Failure;
use landfall::retry::{BreakerOptions, BudgetOptions, Dependency, Options};
use metrics_exporter_prometheus::PrometheusBuilder;

use crate::fixture::{SECOND, options};

#[test]
fn decisions_are_counted_per_dependency() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let handle = recorder.handle();
    metrics::with_local_recorder(&recorder, || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(fail());
    });
    let shown = handle.render();
    for line in [
        r#"landfall_retry_allowed_total{dependency="search"} 2"#,
        r#"landfall_retry_exhausted_total{dependency="search"} 1"#,
        r#"landfall_retry_after_honored_total{dependency="search"} 2"#,
        r#"landfall_breaker_state{dependency="search"} 2"#,
    ] {
        assert!(shown.lines().any(|shown| shown == line), "{line} is missing in\n{shown}");
    }
}

/// Three attempts fail; the third opens the breaker and finds the budget empty.
async fn fail() {
    let budget = BudgetOptions { ratio: 0.0, floor: 2, window: 100 * SECOND, ..Default::default() };
    let breaker = BreakerOptions { minimum_calls: 3, failure_rate: 1.0, window: 100 * SECOND, ..Default::default() };
    let dependency = Dependency::new("search", Options { budget, breaker, ..options() }).unwrap();
    let busy = || Failure::from_status(429, Some(SECOND)).unwrap();
    dependency.retry(|_| async { Err::<(), _>(busy()) }).await.unwrap_err();
}
