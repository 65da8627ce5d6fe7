//! The scripts that run inside Redis, where several steps must be one.

use std::sync::LazyLock;

use redis::{Cmd, Pipeline};

macro_rules! scripts {
    ($($name:ident = $file:literal),+ $(,)?) => {
        $(pub(crate) static $name: LazyLock<redis::Script> =
            LazyLock::new(|| redis::Script::new(include_str!(concat!("scripts/", $file))));)+

        /// Hands every script to the server, which forgets them when it is restarted.
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

/// A call of `script`; its arguments follow.
pub(crate) fn call(script: &redis::Script, keys: &[&str]) -> Cmd {
    call_with_room(script, keys, (0, 0))
}

/// As [`call`], with room for about so many arguments, of so many bytes together.
pub(crate) fn call_with_room(script: &redis::Script, keys: &[&str], (arguments, bytes): (usize, usize)) -> Cmd {
    let own: usize = keys.iter().map(|key| key.len()).sum();
    let mut command = Cmd::with_capacity(keys.len() + 8 + arguments, own + 100 + bytes);
    command.arg("EVALSHA").arg(script.get_hash()).arg(keys.len()).arg(keys);
    command
}
