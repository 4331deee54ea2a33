//! Servers that are known: how each is started on a host and port, where it says that it is ready, where its metrics are.

/// What a server is started for.
pub(super) struct On<'a> {
    /// The model, as the target names it.
    pub model: &'a str,
    /// The host of the target's URL, without brackets.
    pub host: &'a str,
    /// Its port.
    pub port: &'a str,
}

/// A server that is known.
pub(super) struct Preset {
    /// Its name.
    pub name: &'static str,
    /// Its command; `MODEL`, `HOST` and `PORT` stand for those.
    pub command: &'static [&'static str],
    /// Likewise its environment.
    pub env: &'static [(&'static str, &'static str)],
    /// The path that answers with 200 once it is ready.
    pub ready: &'static str,
    /// The path of its metrics page.
    pub metrics: Option<&'static str>,
}

/// All that are known.
pub(super) const PRESETS: [Preset; 7] = [
    Preset {
        name: "vllm",
        command: &["vllm", "serve", "MODEL", "--host", "HOST", "--port", "PORT"],
        env: &[],
        ready: "/health",
        metrics: Some("/metrics"),
    },
    Preset {
        name: "lmdeploy",
        command: &["lmdeploy", "serve", "api_server", "MODEL", "--server-name", "HOST", "--server-port", "PORT"],
        env: &[],
        ready: "/health",
        metrics: Some("/metrics"),
    },
    Preset {
        name: "sglang",
        command: &[
            "python3",
            "-m",
            "sglang.launch_server",
            "--model-path",
            "MODEL",
            "--host",
            "HOST",
            "--port",
            "PORT",
            "--enable-metrics",
        ],
        env: &[],
        ready: "/health",
        metrics: Some("/metrics"),
    },
    Preset {
        name: "llama-server",
        command: &["llama-server", "-m", "MODEL", "--host", "HOST", "--port", "PORT", "--metrics"],
        env: &[],
        ready: "/health",
        metrics: Some("/metrics"),
    },
    Preset {
        name: "transformers",
        command: &["transformers", "serve", "MODEL", "--host", "HOST", "--port", "PORT"],
        env: &[],
        ready: "/health",
        metrics: None,
    },
    Preset {
        name: "ollama",
        command: &["ollama", "serve"],
        env: &[("OLLAMA_HOST", "HOST:PORT")],
        ready: "/api/version",
        metrics: None,
    },
    Preset {
        name: "tgi",
        command: &["text-generation-launcher", "--model-id", "MODEL", "--hostname", "HOST", "--port", "PORT"],
        env: &[],
        ready: "/health",
        metrics: Some("/metrics"),
    },
];

impl Preset {
    /// Its command on a host and port.
    pub fn command(&self, on: &On<'_>) -> Vec<String> {
        let word = |word: &&str| match *word {
            "MODEL" => on.model.to_owned(),
            "HOST" => on.host.to_owned(),
            "PORT" => on.port.to_owned(),
            word => word.to_owned(),
        };
        self.command.iter().map(word).collect()
    }

    /// Its environment there.
    pub fn env(&self, on: &On<'_>) -> Vec<(String, String)> {
        let host = if on.host.contains(':') { format!("[{}]", on.host) } else { on.host.to_owned() };
        let value = |value: &str| value.replace("HOST", &host).replace("PORT", on.port);
        self.env.iter().map(|(name, own)| ((*name).to_owned(), value(own))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ON: On<'static> = On { model: "org/m", host: "127.0.0.1", port: "8000" };

    #[test]
    fn the_page_shows_the_commands_that_are_started() {
        let page = include_str!("../../../../../docs/servers.md");
        for preset in &PRESETS {
            let env = preset.env(&ON).iter().map(|(name, value)| format!("{name}={value} ")).collect::<String>();
            let command = env + &preset.command(&ON).join(" ");
            let metrics = preset.metrics.map_or("none".to_owned(), |path| format!("`{path}`"));
            let row = format!("| `{}` | `{command}` | `{}` | {metrics} |", preset.name, preset.ready);
            assert!(page.contains(&row), "docs/servers.md lacks:\n{row}");
        }
    }

    #[test]
    fn an_address_of_ipv6_is_bracketed_where_a_port_follows() {
        let on = On { host: "::1", ..ON };
        let of = |name: &str| PRESETS.iter().find(|preset| preset.name == name).unwrap();
        assert_eq!(of("ollama").env(&on), [("OLLAMA_HOST".to_owned(), "[::1]:8000".to_owned())]);
        assert_eq!(of("vllm").command(&on)[4], "::1");
    }
}
