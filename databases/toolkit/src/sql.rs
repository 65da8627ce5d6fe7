use std::sync::Arc;

use landfall_core::TablePrefix;
use sqlx::AssertSqlSafe;

/// A statement in which only the validated table prefix was filled in. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Sql(Arc<str>);

impl Sql {
    pub fn new(template: &str, prefix: &TablePrefix) -> Self {
        Self(fill_prefix(template, prefix).into())
    }

    pub fn text(&self) -> AssertSqlSafe<Arc<str>> {
        AssertSqlSafe(self.0.clone())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Fills in the prefix in place of `{p}` (with its schema) and `{b}` (without). Safe because a [`TablePrefix`] consists
/// of lower-case identifiers.
pub fn fill_prefix(template: &str, prefix: &TablePrefix) -> String {
    template.replace("{p}", prefix.as_str()).replace("{b}", prefix.bare())
}

/// Declares `struct Statements` with a field per statement, `name: Type = template;`, and `Statements::new(prefix)`,
/// which builds each with `Type::new(template, prefix)`. `expand = function;` in front applies a function to every
/// template first.
#[macro_export]
macro_rules! statements {
    (expand = $expand:path; $($name:ident: $kind:ident = $template:expr;)*) => {
        pub(crate) struct Statements {
            $(pub(crate) $name: $kind,)*
        }

        impl Statements {
            pub(crate) fn new(prefix: &landfall_core::TablePrefix) -> Self {
                Self { $($name: $kind::new($expand($template).as_ref(), prefix),)* }
            }
        }
    };
    ($($name:ident: $kind:ident = $template:expr;)*) => {
        $crate::statements! { expand = std::convert::identity::<&str>; $($name: $kind = $template;)* }
    };
}
