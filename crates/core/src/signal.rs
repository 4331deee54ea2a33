//! Telemetry signals: common names for what is sampled during a run, whatever the source.

use crate::units::Unit;
use serde::{Deserialize, Serialize};
use std::fmt;

/// How the values of a signal are computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// A sampled value; statistics are over the samples of the measured window.
    Gauge,
    /// A counter, as its rate per second between two samples.
    Rate,
    /// The increase of one counter ÷ that of another, between two samples and over the window.
    Ratio,
    /// A histogram: quantiles from the increase of its buckets over the measured window, limited by bucket width.
    Histogram,
}

macro_rules! signals {
    ($($(#[doc = $doc:literal])* $variant:ident $name:literal $unit:ident $form:ident;)*) => {
        /// A telemetry signal, named as in objectives, tables and results.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum Signal { $($(#[doc = $doc])* #[serde(rename = $name)] $variant,)* }

        impl Signal {
            /// Every signal, in the order of the tables.
            pub const ALL: &[Signal] = &[$(Signal::$variant,)*];

            /// The name: `server.waiting`.
            pub fn name(self) -> &'static str { match self { $(Signal::$variant => $name,)* } }

            /// The definition in a sentence.
            pub fn definition(self) -> &'static str {
                match self { $(Signal::$variant => concat!($($doc),*).trim_ascii(),)* }
            }

            /// The unit.
            pub fn unit(self) -> Unit { match self { $(Signal::$variant => Unit::$unit,)* } }

            /// How its values are computed.
            pub fn form(self) -> Form { match self { $(Signal::$variant => Form::$form,)* } }
        }
    };
}

signals! {
    /// Requests that the server is processing.
    ServerRunning "server.running" Count Gauge;
    /// Requests that wait inside the server.
    ServerWaiting "server.waiting" Count Gauge;
    /// Share of the KV cache in use.
    ServerKvCacheUsage "server.kv_cache_usage" Share Gauge;
    /// Requests preempted for lack of KV cache, per second.
    ServerPreemptions "server.preemptions" PerSecond Rate;
    /// Prompt tokens found in the prefix cache ÷ those looked up.
    ServerPrefixCacheHitRate "server.prefix_cache_hit_rate" Share Ratio;
    /// Draft tokens accepted ÷ those proposed.
    ServerSpecAcceptRate "server.spec_accept_rate" Share Ratio;
    /// Requests that the server finished, per second.
    ServerRequestThroughput "server.request_throughput" RequestsPerSecond Rate;
    /// Prompt tokens that the server processed, per second.
    ServerPromptTps "server.prompt_tps" TokensPerSecond Rate;
    /// Tokens that the server generated, per second.
    ServerOutputTps "server.output_tps" TokensPerSecond Rate;
    /// TTFT measured by the server.
    ServerTtft "server.ttft" Millis Histogram;
    /// ITL measured by the server.
    ServerItl "server.itl" Millis Histogram;
    /// Request latency measured by the server.
    ServerE2e "server.e2e" Millis Histogram;
    /// Queue time measured by the server.
    ServerQueueTime "server.queue_time" Millis Histogram;
    /// Prefill time measured by the server.
    ServerPrefillTime "server.prefill_time" Millis Histogram;
    /// Decode time measured by the server.
    ServerDecodeTime "server.decode_time" Millis Histogram;
    /// GPU utilization; mean over several GPUs.
    GpuUtilization "gpu.utilization" Share Gauge;
    /// GPU memory bandwidth utilization; mean over several GPUs.
    GpuMemoryUtilization "gpu.memory_utilization" Share Gauge;
    /// GPU memory in use; sum over several GPUs.
    GpuMemory "gpu.memory" Bytes Gauge;
    /// GPU memory in use by the managed server's processes; sum over several GPUs.
    GpuMemoryServer "gpu.memory_server" Bytes Gauge;
    /// GPU power; sum over several GPUs.
    GpuPower "gpu.power" Watts Gauge;
    /// GPU core clock; minimum over several GPUs.
    GpuClock "gpu.clock" Megahertz Gauge;
    /// GPU memory clock; minimum over several GPUs.
    GpuMemoryClock "gpu.memory_clock" Megahertz Gauge;
    /// GPU temperature; maximum over several GPUs.
    GpuTemperature "gpu.temperature" Celsius Gauge;
    /// Share of GPUs that are throttled by power, heat or a fault.
    GpuThrottled "gpu.throttled" Share Gauge;
    /// CPU of the managed server and all its children, in cores.
    ProcessCpu "process.cpu" Count Gauge;
    /// Resident memory of the managed server and all its children.
    ProcessMemory "process.memory" Bytes Gauge;
    /// Read from disk by the managed server and all its children.
    ProcessDiskRead "process.disk_read" BytesPerSecond Rate;
    /// Written to disk by the managed server and all its children.
    ProcessDiskWrite "process.disk_write" BytesPerSecond Rate;
    /// CPU of the load generator, in cores.
    ToolCpu "tool.cpu" Count Gauge;
    /// Resident memory of the load generator.
    ToolMemory "tool.memory" Bytes Gauge;
    /// Read from disk by the load generator.
    ToolDiskRead "tool.disk_read" BytesPerSecond Rate;
    /// Written to disk by the load generator.
    ToolDiskWrite "tool.disk_write" BytesPerSecond Rate;
    /// CPU of the host, as a share of all cores.
    HostCpu "host.cpu" Share Gauge;
    /// Memory of the host in use.
    HostMemory "host.memory" Bytes Gauge;
    /// Received over the network by the host.
    HostNetIn "host.net_in" BytesPerSecond Rate;
    /// Sent over the network by the host.
    HostNetOut "host.net_out" BytesPerSecond Rate;
    /// Read from disk by the host.
    HostDiskRead "host.disk_read" BytesPerSecond Rate;
    /// Written to disk by the host.
    HostDiskWrite "host.disk_write" BytesPerSecond Rate;
}

impl Signal {
    /// Parses [`Signal::name`].
    pub fn parse(name: &str) -> Option<Signal> {
        Signal::ALL
            .iter()
            .copied()
            .find(|signal| signal.name() == name)
    }

    /// The part of the name before the dot: `server`, `gpu`, `process`, `tool`, `host`.
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
            assert!(
                ["server", "gpu", "process", "tool", "host"].contains(&signal.scope()),
                "{signal}"
            );
            assert_eq!(serde_json::to_value(signal).unwrap(), signal.name());
        }
    }
}
