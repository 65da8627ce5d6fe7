//! Misuse of the attribute is refused with a sentence.
//!
//! The program includes the modules, because a procedural macro's own unit tests need the compiler's libraries to run.
#![allow(clippy::unwrap_used, unreachable_pub, reason = "a test fails by panicking")]

#[path = "../src/arguments.rs"]
mod arguments;
#[path = "../src/expand.rs"]
mod expand;

use expand::expand;
use proc_macro2::TokenStream;
use quote::quote;

fn refusal(arguments: TokenStream, item: TokenStream) -> String {
    expand(arguments, item).unwrap_err().to_string()
}

fn all() -> TokenStream {
    quote!(engine = e, scope = s, business_type = "t", key = k, fingerprint = f, policy = p)
}

#[test]
fn each_missing_argument_is_named() {
    let function = || {
        quote!(
            async fn pay(e: Engine) -> Result<u32, Error> {
                Ok(1)
            }
        )
    };
    for name in ["engine", "scope", "business_type", "key", "fingerprint", "policy"] {
        let rest = all()
            .to_string()
            .split(", ")
            .filter(|part| !part.starts_with(&format!("{name} ")))
            .collect::<Vec<_>>()
            .join(", ");
        let text = refusal(rest.parse().unwrap(), function());
        assert!(text.starts_with(&format!("`{name}` is missing")), "{text}");
    }
    let unknown = quote!(ttl = 3);
    assert!(refusal(unknown, function()).contains("`ttl` is no argument"));
    let all = all();
    assert!(refusal(quote!(#all, key = k), function()).contains("`key` is given twice"));
    assert!(refusal(quote!(#all, on_error = maybe), function()).contains("`unknown` or `nothing_done`"));
    assert!(expand(quote!(#all, on_error = nothing_done), function()).is_ok());
}

#[test]
fn function_that_cannot_run_in_a_task_is_refused() {
    for (function, word) in [
        (
            quote!(
                fn pay() -> Result<u32, Error> {
                    Ok(1)
                }
            ),
            "an async function",
        ),
        (
            quote!(
                async fn pay(&self) -> Result<u32, Error> {
                    Ok(1)
                }
            ),
            "self: Arc<Self>",
        ),
        (
            quote!(
                async fn pay(key: &str) -> Result<u32, Error> {
                    Ok(1)
                }
            ),
            "an owned value",
        ),
        (
            quote!(
                async fn pay((a, b): (u32, u32)) -> Result<u32, Error> {
                    Ok(1)
                }
            ),
            "a name for each",
        ),
        (
            quote!(
                async fn pay() -> u32 {
                    1
                }
            ),
            "returns `Result<T, E>`",
        ),
        (
            quote!(
                async fn pay() -> Result<u32> {
                    Ok(1)
                }
            ),
            "returns `Result<T, E>`",
        ),
        (
            quote!(
                async fn pay() {}
            ),
            "returns `Result<T, E>`",
        ),
    ] {
        let text = refusal(all(), function);
        assert!(text.contains(word), "{text}");
    }
}
