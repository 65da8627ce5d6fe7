//! The attribute of idempotent functions. Use it as `landfall::idempotency::idempotent` (feature `macros`).

mod arguments;
mod expand;

use proc_macro::TokenStream;

/// Makes an async function run once per key.
///
/// ```text
/// #[idempotent(
///     engine = shop.engine,                            // an Idempotency
///     scope = Scope::principal(&tenant)?,              // whose keys they are; there is no default
///     business_type = "payment",
///     key = &order.id,
///     fingerprint = (&tenant, &order),                 // what makes two calls equal; anything serde can serialize
///     policy = Policy::new(OnUnknown::Uncertain),      // what follows when a crash leaves the outcome unknown
///     on_error = unknown,                              // or nothing_done; unknown by default
/// )]
/// async fn pay(shop: Shop, tenant: String, order: Order) -> Result<Receipt, PayError> { … }
/// ```
///
/// The function returns `Result<Receipt, idempotency::Error<PayError>>`. Its body runs in a task of its own, so its
/// arguments are owned. The receipt is stored as JSON. An error of an argument is `Error::Store` of kind `Invalid`.
#[proc_macro_attribute]
pub fn idempotent(arguments: TokenStream, item: TokenStream) -> TokenStream {
    expand::expand(arguments.into(), item.into()).unwrap_or_else(syn::Error::into_compile_error).into()
}
