//! The arguments of the attribute: `name = expression`, each once.

use proc_macro2::Span;
use syn::parse::{Parse, ParseStream};
use syn::punctuated::Punctuated;
use syn::{Error, Expr, Ident, Result, Token};

/// The parsed arguments. All but the last are required.
pub(crate) struct Arguments {
    pub(crate) engine: Expr,
    pub(crate) scope: Expr,
    pub(crate) business_type: Expr,
    pub(crate) key: Expr,
    pub(crate) fingerprint: Expr,
    pub(crate) policy: Expr,
    pub(crate) on_error: OnError,
}

/// What an error of the function says about its work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnError {
    Unknown,
    NothingDone,
}

const NAMES: [&str; 7] = ["engine", "scope", "business_type", "key", "fingerprint", "policy", "on_error"];

struct Argument {
    name: Ident,
    value: Expr,
}

impl Parse for Argument {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let name = input.parse()?;
        input.parse::<Token![=]>()?;
        Ok(Self { name, value: input.parse()? })
    }
}

impl Parse for Arguments {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let mut given: Vec<Argument> =
            Punctuated::<Argument, Token![,]>::parse_terminated(input)?.into_iter().collect();
        for (place, Argument { name, .. }) in given.iter().enumerate() {
            if !NAMES.iter().any(|known| name == known) {
                let text = format!("`{name}` is no argument of `idempotent`; it has {}", NAMES.join(", "));
                return Err(Error::new(name.span(), text));
            }
            if given[..place].iter().any(|earlier| earlier.name == *name) {
                return Err(Error::new(name.span(), format!("`{name}` is given twice")));
            }
        }
        let mut take = |name: &str| {
            let place = given.iter().position(|argument| argument.name == name)?;
            Some(given.swap_remove(place).value)
        };
        let missing = |name: &str, why: &str| Error::new(Span::call_site(), format!("`{name}` is missing: {why}"));
        Ok(Self {
            on_error: take("on_error").map_or(Ok(OnError::Unknown), |value| on_error(&value))?,
            engine: take("engine").ok_or_else(|| missing("engine", "name the `Idempotency` to run with"))?,
            scope: take("scope").ok_or_else(|| {
                missing("scope", "say whose keys they are; `Scope::Global` shares them between all callers")
            })?,
            business_type: take("business_type")
                .ok_or_else(|| missing("business_type", "say what the key is about, such as \"payment\""))?,
            key: take("key").ok_or_else(|| missing("key", "say which call this is, such as `&order.id`"))?,
            fingerprint: take("fingerprint")
                .ok_or_else(|| missing("fingerprint", "say what makes two calls equal, such as `(&tenant, &order)`"))?,
            policy: take("policy").ok_or_else(|| {
                missing("policy", "say what follows a crash, such as `Policy::new(OnUnknown::Rerun)`")
            })?,
        })
    }
}

fn on_error(value: &Expr) -> Result<OnError> {
    let word = match value {
        Expr::Path(path) => path.path.get_ident().map(Ident::to_string).unwrap_or_default(),
        _ => String::new(),
    };
    match word.as_str() {
        "unknown" => Ok(OnError::Unknown),
        "nothing_done" => Ok(OnError::NothingDone),
        _ => Err(Error::new_spanned(value, "`on_error` is `unknown` or `nothing_done`")),
    }
}
