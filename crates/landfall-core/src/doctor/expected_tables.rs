//! The expected tables and indexes of this build, read from its own DDL.
//!
//! The doctor compares them with the live server. The DDL is Landfall's own (`Schema::ddl`), so a few conventions
//! (keywords in capitals, function bodies between `$$`) replace an SQL parser.

use crate::Rank;

/// The tables and indexes that exist after the DDL has run.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ExpectedTables {
    pub tables: Vec<ExpectedTable>,
    pub indexes: Vec<ExpectedIndex>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExpectedTable {
    /// Qualified with the schema or database where the DDL does so.
    pub name: String,
    /// Whether the table is unlogged, so that a crash empties it.
    pub is_unlogged: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExpectedIndex {
    pub table: String,
    /// `None` for the primary key.
    pub name: Option<String>,
    pub is_unique: bool,
}

impl ExpectedIndex {
    /// Returns what a missing index can cost. Without a unique index the inbox admits every duplicate as fresh.
    pub fn rank(&self) -> Rank {
        if self.is_unique { Rank::Duplicates } else { Rank::Latency }
    }
}

impl std::fmt::Display for ExpectedIndex {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.name {
            Some(name) => write!(f, "index {name} of {}", self.table),
            None => write!(f, "primary key of {}", self.table),
        }
    }
}

impl ExpectedTables {
    pub fn from_ddl(ddl: &str) -> Self {
        let (text, mut expected) = (without_comments_and_bodies(ddl), Self::default());
        for statement in text.split(';') {
            let words = statement.split(|c: char| c.is_whitespace() || "(),".contains(c));
            let words: Vec<&str> = words.filter(|word| !NOISE.contains(word)).collect();
            expected.read(&words);
        }
        expected
    }

    fn read(&mut self, words: &[&str]) {
        match words {
            ["CREATE", "TABLE", table, rest @ ..] => self.read_table(table, rest, false),
            ["CREATE", "UNLOGGED", "TABLE", table, rest @ ..] => self.read_table(table, rest, true),
            ["CREATE", "UNIQUE", "INDEX", name, "ON", table, ..] => self.add(table, Some(name), true),
            ["CREATE", "INDEX", name, "ON", table, ..] => self.add(table, Some(name), false),
            ["ALTER", "TABLE", table, "RENAME", "TO", new] => {
                let tables = self.tables.iter_mut().map(|known| &mut known.name);
                let names = tables.chain(self.indexes.iter_mut().map(|index| &mut index.table));
                names.filter(|name| *name == table).for_each(|name| (*new).clone_into(name));
            }
            ["ALTER", "TABLE", table, rest @ ..] => self.read_keys(table, rest),
            ["DROP", "TABLE", tables @ ..] => {
                self.tables.retain(|known| !tables.contains(&known.name.as_str()));
                self.indexes.retain(|index| !tables.contains(&index.table.as_str()));
            }
            // `CREATE INDEX` names an index without its schema, `DROP INDEX` may name it with.
            ["DROP", "INDEX", name, ..] => self.remove_named(name.rsplit('.').next().unwrap_or(name)),
            _ => {}
        }
    }

    fn read_table(&mut self, table: &str, rest: &[&str], is_unlogged: bool) {
        self.tables.push(ExpectedTable { name: table.to_owned(), is_unlogged });
        self.read_keys(table, rest);
    }

    /// Reads the keys declared between the columns of a table.
    fn read_keys(&mut self, table: &str, words: &[&str]) {
        for (place, _) in words.iter().enumerate().filter(|(_, word)| matches!(**word, "KEY" | "INDEX")) {
            let before = |steps: usize| place.checked_sub(steps).map_or("", |before| words[before]);
            match (before(2), before(1), words.get(place + 1)) {
                ("DROP", "PRIMARY", _) => self.indexes.retain(|index| index.table != table || index.name.is_some()),
                (_, "PRIMARY", _) => self.add(table, None, true),
                (_, "DROP", Some(name)) => self.remove_named(name),
                (_, "FOREIGN" | "DUPLICATE" | "DROP", _) | (_, _, None) => {}
                (_, kind, Some(name)) => self.add(table, Some(name), kind == "UNIQUE"),
            }
        }
    }

    fn add(&mut self, table: &str, name: Option<&str>, is_unique: bool) {
        self.indexes.push(ExpectedIndex { table: table.to_owned(), name: name.map(str::to_owned), is_unique });
    }

    fn remove_named(&mut self, name: &str) {
        self.indexes.retain(|index| index.name.as_deref() != Some(name));
    }
}

/// Words that do not change the resulting objects.
const NOISE: [&str; 6] = ["", "IF", "NOT", "EXISTS", "CONCURRENTLY", "ONLY"];

fn without_comments_and_bodies(ddl: &str) -> String {
    let lines = ddl.lines().map(|line| line.split_once("--").map_or(line, |(statement, _)| statement));
    let text = lines.collect::<Vec<_>>().join("\n");
    text.split("$$").step_by(2).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index(table: &str, name: Option<&str>, is_unique: bool) -> ExpectedIndex {
        ExpectedIndex { table: table.into(), name: name.map(str::to_owned), is_unique }
    }

    #[test]
    fn indexes_are_read_in_each_dialect() {
        let found = ExpectedTables::from_ddl(
            "-- CREATE INDEX of_a_comment ON nothing (a);
             CREATE TABLE s.inbox (consumer_group text, key text, PRIMARY KEY (consumer_group, key)) WITH (x = 1);
             CREATE UNIQUE INDEX one ON s.inbox (key) WHERE key <> '';
             CREATE INDEX CONCURRENTLY IF NOT EXISTS two ON s.inbox (key);
             CREATE FUNCTION f() AS $$ BEGIN CREATE INDEX of_a_body ON x (y); END $$;
             CREATE TABLE IF NOT EXISTS t (id BIGINT PRIMARY KEY, `key` TEXT, -- KEY of_a_comment
                 UNIQUE KEY three (`key`), KEY four (id, `key`)
             ) ENGINE = InnoDB;
             INSERT INTO t VALUES (1) ON DUPLICATE KEY UPDATE id = id;",
        );
        let names: Vec<&str> = found.tables.iter().map(|table| table.name.as_str()).collect();
        assert_eq!(names, ["s.inbox", "t"]);
        assert_eq!(
            found.indexes,
            [
                index("s.inbox", None, true),
                index("s.inbox", Some("one"), true),
                index("s.inbox", Some("two"), false),
                index("t", None, true),
                index("t", Some("three"), true),
                index("t", Some("four"), false),
            ]
        );
        assert_eq!(found.indexes[0].to_string(), "primary key of s.inbox");
        assert_eq!((found.indexes[1].rank(), found.indexes[2].rank()), (Rank::Duplicates, Rank::Latency));
    }

    #[test]
    fn objects_dropped_later_are_not_expected() {
        let found = ExpectedTables::from_ddl(
            "CREATE UNLOGGED TABLE alive (one boolean PRIMARY KEY); CREATE TABLE old (a INT PRIMARY KEY);
             CREATE TABLE t (a INT, KEY first (a), KEY second (a));
             CREATE INDEX third ON t (a); CREATE INDEX fourth ON old (a);
             ALTER TABLE t DROP KEY IF EXISTS first, ADD UNIQUE KEY IF NOT EXISTS fifth (a), ADD PRIMARY KEY (a);
             ALTER TABLE alive DROP PRIMARY KEY, ADD PRIMARY KEY (one);
             DROP INDEX IF EXISTS s.third; DROP TABLE IF EXISTS old;
             CREATE TABLE rebuilt (a INT PRIMARY KEY); ALTER TABLE rebuilt RENAME TO rebuilt_1; DROP TABLE rebuilt_1;",
        );
        let table = ExpectedTable { name: "alive".into(), is_unlogged: true };
        assert_eq!(found.tables, [table, ExpectedTable { name: "t".into(), is_unlogged: false }]);
        assert_eq!(
            found.indexes,
            [
                index("t", Some("second"), false),
                index("t", Some("fifth"), true),
                index("t", None, true),
                index("alive", None, true)
            ]
        );
    }
}
