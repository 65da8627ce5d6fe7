//! The CPU time of a PostgreSQL server, from `/proc`.

use std::fs;
use std::time::Duration;

use sqlx::PgPool;

use crate::Result;

/// Linux reports times in hundredths of a second, whatever the kernel's own clock.
const TICKS_PER_SECOND: u64 = 100;

/// The processes of one server.
pub(super) struct ServerCpu {
    postmaster: u32,
}

/// The fields of `/proc/PID/stat` that are needed here.
struct Stat {
    parent: u32,
    own_ticks: u64,
    ended_children_ticks: u64,
}

impl ServerCpu {
    pub(super) async fn of(pool: &PgPool) -> Result<Self> {
        let backend: i32 = sqlx::query_scalar("SELECT pg_backend_pid()").fetch_one(pool).await?;
        let stat = read(backend as u32).ok_or("/proc does not show the server: it runs on another machine")?;
        Ok(Self { postmaster: stat.parent })
    }

    /// All time since the server started, of processes that have ended too.
    pub(super) fn used(&self) -> Result<Duration> {
        let mut ticks = 0;
        for entry in fs::read_dir("/proc")? {
            let Some(process) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
            // A process may end between the listing and the read.
            let Some(stat) = read(process) else { continue };
            if process == self.postmaster {
                ticks += stat.own_ticks + stat.ended_children_ticks;
            } else if stat.parent == self.postmaster {
                ticks += stat.own_ticks;
            }
        }
        Ok(Duration::from_millis(ticks * 1000 / TICKS_PER_SECOND))
    }
}

fn read(process: u32) -> Option<Stat> {
    let text = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The second field is the name in parentheses, which may contain spaces.
    let fields: Vec<&str> = text.rsplit_once(") ")?.1.split(' ').collect();
    let ticks = |field: usize| fields.get(field)?.parse::<u64>().ok();
    let own_ticks = ticks(11)? + ticks(12)?;
    Some(Stat { parent: fields.get(1)?.parse().ok()?, own_ticks, ended_children_ticks: ticks(13)? + ticks(14)? })
}
