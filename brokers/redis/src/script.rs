//! Lua scripts that run atomically in Redis.

use std::sync::LazyLock;

use redis::{Cmd, Pipeline};

macro_rules! scripts {
    ($($name:ident = $file:literal),+ $(,)?) => {
        $(pub(crate) static $name: LazyLock<redis::Script> =
            LazyLock::new(|| redis::Script::new(include_str!(concat!("scripts/", $file))));)+

        /// Loads all scripts into the server, which loses them when it restarts.
        pub(crate) fn load_all() -> Pipeline {
            let mut pipeline = redis::pipe();
            $(pipeline.cmd("SCRIPT").arg("LOAD").arg(include_str!(concat!("scripts/", $file)));)+
            pipeline
        }
    };
}

scripts! {
    APPEND = "append.lua",
    CLAIM = "claim.lua",
    HOLD = "hold.lua",
    JOIN = "join.lua",
    RELEASE = "release.lua",
    TRIM = "trim.lua",
}

/// Starts a call of `script`; the caller adds its arguments.
pub(crate) fn call(script: &redis::Script, keys: &[&str]) -> Cmd {
    call_with_capacity(script, keys, (0, 0))
}

/// Like [`call`], with capacity for about this many arguments and bytes.
pub(crate) fn call_with_capacity(script: &redis::Script, keys: &[&str], (arguments, bytes): (usize, usize)) -> Cmd {
    let own: usize = keys.iter().map(|key| key.len()).sum();
    let mut command = Cmd::with_capacity(keys.len() + 8 + arguments, own + 100 + bytes);
    command.arg("EVALSHA").arg(script.get_hash()).arg(keys.len()).arg(keys);
    command
}
