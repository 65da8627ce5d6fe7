//! Runs one test on every database.

/// Runs `test` on SQLite, and on PostgreSQL and MariaDB if a server is available.
macro_rules! on_each {
    ($($(#[$attribute:meta])* async fn $name:ident($sandbox:ident: &Sandbox) $body:block)*) => {$(
        mod $name {
            use super::*;

            async fn test($sandbox: &Sandbox) $body

            $(#[$attribute])*
            #[tokio::test]
            async fn on_sqlite() {
                test(&Sandbox::new()).await;
            }

            $(#[$attribute])*
            #[tokio::test]
            async fn on_postgres() {
                if let Some(sandbox) = Sandbox::on_postgres().await {
                    test(&sandbox).await;
                }
            }

            $(#[$attribute])*
            #[tokio::test]
            async fn on_mysql() {
                if let Some(sandbox) = Sandbox::on_mysql().await {
                    test(&sandbox).await;
                }
            }
        }
    )*};
}

pub(crate) use on_each;
