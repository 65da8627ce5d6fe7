//! One test on every database.

/// Runs `test` on SQLite, and on PostgreSQL and MariaDB where there is a server.
macro_rules! on_each {
    ($($(#[$attribute:meta])* async fn $name:ident($place:ident: &Place) $body:block)*) => {$(
        mod $name {
            use super::*;

            async fn test($place: &Place) $body

            $(#[$attribute])*
            #[tokio::test]
            async fn on_sqlite() {
                test(&Place::new()).await;
            }

            $(#[$attribute])*
            #[tokio::test]
            async fn on_postgres() {
                if let Some(place) = Place::on_postgres().await {
                    test(&place).await;
                }
            }

            $(#[$attribute])*
            #[tokio::test]
            async fn on_mysql() {
                if let Some(place) = Place::on_mysql().await {
                    test(&place).await;
                }
            }
        }
    )*};
}

pub(crate) use on_each;
