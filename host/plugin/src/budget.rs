//! The limits of one call.

use std::time::Duration;

use tollgate_core::plugin::World;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Budget {
    /// Wall time, waiting for a free slot included.
    pub(super) time: Duration,
    /// Of all the guest's memories together.
    pub(super) memory_bytes: usize,
    pub(super) host_calls: u32,
    /// Of log lines; more is dropped.
    pub(super) log_bytes: usize,
    /// Bytes the guest may hand to the host in one go.
    pub(super) data_bytes: usize,
    /// CPU time of the guest's own code, if less than the wall time.
    pub(super) cpu_time: Duration,
}

impl Budget {
    /// The budget where the grant says nothing. Providers and generators mostly wait for other
    /// servers.
    pub(super) fn of_world(world: World) -> Self {
        match world {
            World::HeaderFilter => Self {
                time: Duration::from_millis(100),
                memory_bytes: 16 << 20,
                host_calls: 256,
                log_bytes: 8 << 10,
                data_bytes: 256 << 10,
                cpu_time: Duration::from_millis(100),
            },
            World::CredentialProvider | World::Generator => Self {
                time: Duration::from_secs(10),
                memory_bytes: 64 << 20,
                host_calls: 4096,
                log_bytes: 8 << 10,
                data_bytes: 2 << 20,
                cpu_time: Duration::from_secs(1),
            },
        }
    }

    /// The same budget with at most `time` of wall time.
    pub(super) fn within(self, time: Duration) -> Self {
        Self {
            time: self.time.min(time),
            ..self
        }
    }

    pub(super) fn time_ms(self) -> u32 {
        u32::try_from(self.time.as_millis()).unwrap_or(u32::MAX)
    }

    /// The budget of the one call at load, which may take longer. The effective limit is the CPU
    /// time, so that a busy machine does not make a working plugin fail to load.
    pub(super) fn for_load(self) -> Self {
        Self {
            time: self.time.max(Duration::from_secs(30)),
            cpu_time: self.cpu_time.max(Duration::from_secs(5)),
            ..self
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ExceededLimit {
    Time,
    Memory,
    HostCalls,
}
