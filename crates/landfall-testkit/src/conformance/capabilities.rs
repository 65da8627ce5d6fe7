//! Cases that need a capability: an adapter declares what it lacks, and libtest ignores those cases, with the reason.
//!
//! Skipping by mistake is impossible: `declared_capabilities_are_those_of_the_adapter` fails unless the declaration and
//! the adapter's own capabilities agree.

/// Asserts that exactly the `declared` capabilities are lacking. `present` says for each whether the adapter has it.
///
/// # Panics
///
/// If the two differ.
pub(super) fn assert_declared(declared: &[&str], present: &[(&str, bool)]) {
    let lacking = present.iter().filter(|(_, is_present)| !is_present).map(|(name, _)| *name);
    let (mut lacking, mut declared) = (lacking.collect::<Vec<_>>(), declared.to_vec());
    lacking.sort_unstable();
    declared.sort_unstable();
    assert_eq!(declared, lacking, "left: declared after `without`; right: lacking according to the adapter");
}

/// Defines the macro `conformance_case!`, which generates one test. The test is ignored if it needs a capability that
/// is listed here.
#[doc(hidden)]
#[macro_export]
macro_rules! conformance_case {
    ($($lacking:ident: $reason:literal),*) => {
        macro_rules! conformance_case {
            $(
                ($lacking, $test:ident, $run:expr) => {
                    #[test]
                    #[ignore = $reason]
                    fn $test() {}
                };
                ($lacking and $other:ident, $test:ident, $run:expr) => {
                    conformance_case! { $lacking, $test, $run }
                };
                ($other:ident and $lacking, $test:ident, $run:expr) => {
                    conformance_case! { $lacking, $test, $run }
                };
            )*
            ($needed:ident and $other:ident, $test:ident, $run:expr) => {
                conformance_case! { , $test, $run }
            };
            ($needed:ident, $test:ident, $run:expr) => {
                conformance_case! { , $test, $run }
            };
            (, $test:ident, $run:expr) => {
                #[::tokio::test(flavor = "multi_thread")]
                async fn $test() {
                    $run.await;
                }
            };
        }
    };
}

#[cfg(test)]
mod tests {
    use super::assert_declared;

    #[test]
    fn exact_declaration_is_accepted() {
        assert_declared(&["replay"], &[("durable", true), ("replay", false)]);
    }

    #[test]
    #[should_panic(expected = "declared after `without`")]
    fn capability_declared_as_lacking_by_mistake_is_detected() {
        assert_declared(&["replay"], &[("durable", true), ("replay", true)]);
    }

    #[test]
    #[should_panic(expected = "declared after `without`")]
    fn undeclared_lack_is_detected() {
        assert_declared(&[], &[("durable", true), ("replay", false)]);
    }
}
