//! The signals: what is sampled beside the requests, one name for it whatever its source.

use crate::units::Unit;
use serde::{Deserialize, Serialize};
use std::fmt;

/// How the values of a signal come about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// A value at an instant. Statistics are over the samples of the measured window.
    Gauge,
    /// A count that grows, as its rate between two samples, per second.
    Rate,
    /// The growth of one count over that of another, between two samples and over the window.
    Ratio,
    /// A histogram of the server's: quantiles from the growth of its buckets over the measured window, as well as these show.
    Histogram,
}

macro_rules! signals {
    ($($(#[$doc:meta])* $variant:ident $name:literal $unit:ident $form:ident;)*) => {
        /// A signal, by its name in SLOs, tables and results.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum Signal { $($(#[$doc])* #[serde(rename = $name)] $variant,)* }

        impl Signal {
            /// Every signal, in the order of the tables.
            pub const ALL: &[Signal] = &[$(Signal::$variant,)*];

            /// Its name: `server.waiting`.
            pub fn name(self) -> &'static str { match self { $(Signal::$variant => $name,)* } }

            /// Its unit.
            pub fn unit(self) -> Unit { match self { $(Signal::$variant => Unit::$unit,)* } }

            /// How its values come about.
            pub fn form(self) -> Form { match self { $(Signal::$variant => Form::$form,)* } }
        }
    };
}

signals! {
    /// Requests that the server works on.
    ServerRunning "server.running" Count Gauge;
    /// Requests that wait inside the server.
    ServerWaiting "server.waiting" Count Gauge;
    /// Share of the KV cache in use.
    ServerKvCacheUsage "server.kv_cache_usage" Share Gauge;
    /// Requests put back for want of KV cache, per second.
    ServerPreemptions "server.preemptions" PerSecond Rate;
    /// Prompt tokens found in the prefix cache, over those looked up.
    ServerPrefixCacheHitRate "server.prefix_cache_hit_rate" Share Ratio;
    /// Draft tokens accepted, over those proposed.
    ServerSpecAcceptRate "server.spec_accept_rate" Share Ratio;
    /// Requests that the server finished, per second.
    ServerRequestThroughput "server.request_throughput" RequestsPerSecond Rate;
    /// Prompt tokens that the server worked on, per second.
    ServerPromptTps "server.prompt_tps" TokensPerSecond Rate;
    /// Tokens that the server generated, per second.
    ServerOutputTps "server.output_tps" TokensPerSecond Rate;
    /// The server's own time to the first token.
    ServerTtft "server.ttft" Millis Histogram;
    /// The server's own gaps between tokens.
    ServerItl "server.itl" Millis Histogram;
    /// The server's own time for a whole request.
    ServerE2e "server.e2e" Millis Histogram;
    /// How long requests waited inside the server.
    ServerQueueTime "server.queue_time" Millis Histogram;
    /// How long the server worked on prompts.
    ServerPrefillTime "server.prefill_time" Millis Histogram;
    /// How long the server generated.
    ServerDecodeTime "server.decode_time" Millis Histogram;
    /// Share of the time in which a GPU had work; the mean of several.
    GpuUtilization "gpu.utilization" Share Gauge;
    /// Share of the time in which a GPU's memory was read or written; the mean of several.
    GpuMemoryUtilization "gpu.memory_utilization" Share Gauge;
    /// GPU memory in use; the sum of several.
    GpuMemory "gpu.memory" Bytes Gauge;
    /// GPU memory in use by the managed server's processes; the sum of several.
    GpuMemoryServer "gpu.memory_server" Bytes Gauge;
    /// Electrical power; the sum of several.
    GpuPower "gpu.power" Watts Gauge;
    /// Clock of the GPU's processors; the least of several.
    GpuClock "gpu.clock" Megahertz Gauge;
    /// Clock of the GPU's memory; the least of several.
    GpuMemoryClock "gpu.memory_clock" Megahertz Gauge;
    /// Temperature; the greatest of several.
    GpuTemperature "gpu.temperature" Celsius Gauge;
    /// Share of GPUs that run slower than they could for power, heat or a fault.
    GpuThrottled "gpu.throttled" Share Gauge;
    /// CPU of the managed server and all its children, in cores.
    ProcessCpu "process.cpu" Count Gauge;
    /// Resident memory of the managed server and all its children.
    ProcessMemory "process.memory" Bytes Gauge;
    /// Read from disk by the managed server and all its children.
    ProcessDiskRead "process.disk_read" BytesPerSecond Rate;
    /// Written to disk by the managed server and all its children.
    ProcessDiskWrite "process.disk_write" BytesPerSecond Rate;
    /// CPU of this tool, in cores.
    ToolCpu "tool.cpu" Count Gauge;
    /// Resident memory of this tool.
    ToolMemory "tool.memory" Bytes Gauge;
    /// Read from disk by this tool.
    ToolDiskRead "tool.disk_read" BytesPerSecond Rate;
    /// Written to disk by this tool.
    ToolDiskWrite "tool.disk_write" BytesPerSecond Rate;
    /// CPU of the whole machine, as a share of all cores.
    HostCpu "host.cpu" Share Gauge;
    /// Memory of the whole machine in use.
    HostMemory "host.memory" Bytes Gauge;
    /// Received over the network by the whole machine.
    HostNetIn "host.net_in" BytesPerSecond Rate;
    /// Sent over the network by the whole machine.
    HostNetOut "host.net_out" BytesPerSecond Rate;
    /// Read from disk by the whole machine.
    HostDiskRead "host.disk_read" BytesPerSecond Rate;
    /// Written to disk by the whole machine.
    HostDiskWrite "host.disk_write" BytesPerSecond Rate;
}

impl Signal {
    /// The signal of that name.
    pub fn parse(name: &str) -> Option<Signal> {
        Signal::ALL.iter().copied().find(|signal| signal.name() == name)
    }

    /// What stands before the point in its name: `server`, `gpu`, `process`, `tool`, `host`.
    pub fn scope(self) -> &'static str {
        self.name().split_once('.').map_or("", |(scope, _)| scope)
    }
}

impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_parse_back_and_have_a_scope() {
        for &signal in Signal::ALL {
            assert_eq!(Signal::parse(signal.name()), Some(signal));
            assert!(["server", "gpu", "process", "tool", "host"].contains(&signal.scope()), "{signal}");
            assert_eq!(serde_json::to_value(signal).unwrap(), signal.name());
        }
    }
}
