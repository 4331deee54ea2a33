//! MLflow, through its REST API 2.0: a run, with a nested run per case if there are several.

use crate::tracking::{CaseSummary, RunSummary, TrackError, list_files};
use llmscen_core::artifacts::Mlflow;
use reqwest::{Client, RequestBuilder, StatusCode, Url};
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;

/// Limits of MLflow: batch sizes (`Log Batch` of its REST API), and length of a parameter value.
const METRICS_PER_BATCH: usize = 1000;
const PARAMS_PER_BATCH: usize = 100;
const MAX_PARAM: usize = 500;
/// Short, to detect quickly that the server is down.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Long, for the upload of files.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(120);
/// Scheme of artifact stores to which the server forwards files.
const PROXIED_STORE: &str = "mlflow-artifacts:";

/// Uploads a run. Returns the URL of its page.
pub(super) fn send_to_mlflow(
    spec: &Mlflow,
    summary: &RunSummary,
    folder: &Path,
) -> Result<String, TrackError> {
    let setup = |error: &dyn std::fmt::Display| TrackError::Setup(error.to_string());
    // A runtime may already run on the calling thread.
    std::thread::scope(|scope| {
        let worker = scope.spawn(|| {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .map_err(|error| setup(&error))?;
            runtime.block_on(Server::new(spec)?.send_run(summary, folder))
        });
        worker
            .join()
            .unwrap_or_else(|_| Err(TrackError::Setup("the upload thread panicked".into())))
    })
}

/// A run on the server.
struct CreatedRun {
    id: String,
    /// URI of its artifact store.
    store: String,
}

struct Server<'a> {
    spec: &'a Mlflow,
    client: Client,
    base: Url,
}

impl<'a> Server<'a> {
    fn new(spec: &'a Mlflow) -> Result<Server<'a>, TrackError> {
        let base = Url::parse(&spec.url)
            .map_err(|error| TrackError::Setup(format!("`{}`: {error}", shown(&spec.url))))?;
        let client = Client::builder()
            .connect_timeout(CONNECT_TIMEOUT)
            .timeout(REQUEST_TIMEOUT)
            .build();
        Ok(Server {
            spec,
            client: client.map_err(|error| TrackError::Setup(error.to_string()))?,
            base,
        })
    }

    async fn send_run(&self, summary: &RunSummary, folder: &Path) -> Result<String, TrackError> {
        let experiment = self.experiment().await?;
        let run = self
            .create_run(&experiment, &summary.run, summary, None)
            .await?;
        match self.upload_run(&experiment, &run, summary, folder).await {
            Ok(()) => self.end_run(&run, summary, final_status(summary)).await?,
            Err(error) => {
                // The first error is reported; a failure to end the run adds nothing.
                let _ = self.end_run(&run, summary, FAILED).await;
                return Err(error);
            }
        }
        Ok(format!(
            "{}/#/experiments/{experiment}/runs/{}",
            shown(&self.spec.url).trim_end_matches('/'),
            run.id
        ))
    }

    /// Uploads everything to a run, with its cases as nested runs.
    async fn upload_run(
        &self,
        experiment: &str,
        run: &CreatedRun,
        summary: &RunSummary,
        folder: &Path,
    ) -> Result<(), TrackError> {
        self.log(run, &summary.run, summary.ended_ms).await?;
        for case in &summary.cases {
            let nested = self
                .create_run(experiment, case, summary, Some(run))
                .await?;
            let logged = self.log(&nested, case, summary.ended_ms).await;
            self.end_run(
                &nested,
                summary,
                if logged.is_ok() {
                    final_status(summary)
                } else {
                    FAILED
                },
            )
            .await?;
            logged?;
        }
        let files = list_files(folder, self.spec.files)?;
        if !files.is_empty() && !run.store.starts_with(PROXIED_STORE) {
            return Err(TrackError::Store(run.store.clone()));
        }
        for (name, path) in files {
            let bytes = std::fs::read(&path).map_err(|source| TrackError::File {
                path: path.clone(),
                source,
            })?;
            self.upload_file(&run.store, &name, bytes).await?;
        }
        Ok(())
    }

    /// The id of the experiment, which is created if it does not exist.
    async fn experiment(&self) -> Result<String, TrackError> {
        let name = &self.spec.experiment;
        let mut url = self.url("api/2.0/mlflow/experiments/get-by-name")?;
        url.query_pairs_mut().append_pair("experiment_name", name);
        let request = self.with_login(self.client.get(url));
        let found = match self.send("experiments/get-by-name", request).await {
            Err(TrackError::Refused { status: 404, .. }) => None,
            other => Some(text(
                &other?,
                "/experiment/experiment_id",
                "experiments/get-by-name",
            )?),
        };
        match found {
            Some(id) => Ok(id),
            None => {
                let created = self
                    .post("experiments/create", json!({ "name": name }))
                    .await?;
                text(&created, "/experiment_id", "experiments/create")
            }
        }
    }

    async fn create_run(
        &self,
        experiment: &str,
        entry: &CaseSummary,
        summary: &RunSummary,
        parent: Option<&CreatedRun>,
    ) -> Result<CreatedRun, TrackError> {
        let tag = |key: &str, value: &str| json!({ "key": key, "value": value });
        let mut tags = vec![
            tag("llmscen.run_id", &summary.run_id),
            tag("llmscen.verdict", summary.verdict),
        ];
        tags.extend(self.spec.tags.iter().map(|(key, value)| tag(key, value)));
        tags.extend(parent.map(|parent| tag("mlflow.parentRunId", &parent.id)));
        let body = json!({
            "experiment_id": experiment, "run_name": entry.name, "start_time": summary.started_ms, "tags": tags,
        });
        let created = self.post("runs/create", body).await?;
        Ok(CreatedRun {
            id: text(&created, "/run/info/run_id", "runs/create")?,
            store: text(&created, "/run/info/artifact_uri", "runs/create")?,
        })
    }

    /// Uploads parameters and metrics. A metric has one point, at the end of the run: `step` 0, `at_ms` in
    /// milliseconds since the epoch.
    async fn log(
        &self,
        run: &CreatedRun,
        entry: &CaseSummary,
        at_ms: u64,
    ) -> Result<(), TrackError> {
        let params = entry
            .params
            .iter()
            .map(|(key, value)| json!({ "key": sanitize_key(key), "value": truncate(value) }))
            .collect::<Vec<_>>();
        for chunk in params.chunks(PARAMS_PER_BATCH) {
            self.post(
                "runs/log-batch",
                json!({ "run_id": run.id, "params": chunk }),
            )
            .await?;
        }
        let metric = |(key, value): &(String, f64)| {
            json!({ "key": key, "value": value,
            "timestamp": at_ms, "step": 0 })
        };
        let metrics: Vec<Value> = entry.metrics.iter().map(metric).collect();
        for chunk in metrics.chunks(METRICS_PER_BATCH) {
            self.post(
                "runs/log-batch",
                json!({ "run_id": run.id, "metrics": chunk }),
            )
            .await?;
        }
        Ok(())
    }

    async fn end_run(
        &self,
        run: &CreatedRun,
        summary: &RunSummary,
        status: &str,
    ) -> Result<(), TrackError> {
        let body = json!({ "run_id": run.id, "status": status, "end_time": summary.ended_ms });
        self.post("runs/update", body).await.map(drop)
    }

    async fn upload_file(&self, store: &str, name: &str, bytes: Vec<u8>) -> Result<(), TrackError> {
        let path = store
            .trim_start_matches(PROXIED_STORE)
            .trim_start_matches('/');
        // The address may include a host: mlflow-artifacts://host/path.
        let path = if store.starts_with("mlflow-artifacts://") {
            path.split_once('/').map_or(path, |(_, path)| path)
        } else {
            path
        };
        let url = self.url(&format!("api/2.0/mlflow-artifacts/artifacts/{path}/{name}"))?;
        let request = self.with_login(self.client.put(url).body(bytes));
        self.send(&format!("the file {name}"), request)
            .await
            .map(drop)
    }

    async fn post(&self, what: &str, body: Value) -> Result<Value, TrackError> {
        let request = self
            .client
            .post(self.url(&format!("api/2.0/mlflow/{what}"))?)
            .header("content-type", "application/json");
        self.send(what, self.with_login(request.body(body.to_string())))
            .await
    }

    fn url(&self, path: &str) -> Result<Url, TrackError> {
        let mut url = self.base.clone();
        let base = url.path().trim_end_matches('/').to_owned();
        url.set_path(&format!("{base}/{path}"));
        Ok(url)
    }

    fn with_login(&self, request: RequestBuilder) -> RequestBuilder {
        match (&self.spec.token, &self.spec.login) {
            (Some(token), _) => request.bearer_auth(token.expose()),
            (None, Some((user, password))) => request.basic_auth(user, Some(password.expose())),
            (None, None) => request,
        }
    }

    async fn send(&self, what: &str, request: RequestBuilder) -> Result<Value, TrackError> {
        let unreachable = |error: reqwest::Error| TrackError::Unreachable {
            url: shown(&self.spec.url),
            reason: std::error::Error::source(&error)
                .map_or_else(|| error.to_string(), |cause| root_cause(cause).to_string()),
        };
        let response = request.send().await.map_err(unreachable)?;
        let status = response.status();
        let body = response.text().await.map_err(unreachable)?;
        let value: Option<Value> = serde_json::from_str(&body).ok();
        match value {
            Some(value) if status.is_success() => Ok(value),
            None if status.is_success() && body.trim().is_empty() => Ok(Value::Null),
            None if status.is_success() => Err(TrackError::Answer {
                what: what.to_owned(),
            }),
            value => Err(refused(what, status, value, &body)),
        }
    }
}

fn refused(what: &str, status: StatusCode, value: Option<Value>, body: &str) -> TrackError {
    let message = value
        .as_ref()
        .and_then(|value| value.get("message"))
        .and_then(Value::as_str)
        .unwrap_or(body);
    TrackError::Refused {
        what: what.to_owned(),
        status: status.as_u16(),
        message: truncate(message.trim()),
    }
}

fn root_cause<'e>(
    error: &'e (dyn std::error::Error + 'static),
) -> &'e (dyn std::error::Error + 'static) {
    error.source().map_or(error, root_cause)
}

fn text(value: &Value, pointer: &str, what: &str) -> Result<String, TrackError> {
    let found = value.pointer(pointer).and_then(Value::as_str);
    found.map(str::to_owned).ok_or_else(|| TrackError::Answer {
        what: what.to_owned(),
    })
}

fn truncate(value: &str) -> String {
    value.chars().take(MAX_PARAM).collect()
}

/// Status of a run with an incomplete upload.
const FAILED: &str = "FAILED";

/// Status of a run with a complete upload.
fn final_status(summary: &RunSummary) -> &'static str {
    if summary.finished {
        "FINISHED"
    } else {
        "KILLED"
    }
}

/// The name with only the characters that MLflow accepts.
fn sanitize_key(name: &str) -> String {
    let plain = |c: char| {
        if c.is_ascii_alphanumeric() || "_-. /:".contains(c) {
            c
        } else {
            '_'
        }
    };
    name.chars().map(plain).collect()
}

/// A URL without login and parameters, which may be secret.
fn shown(url: &str) -> String {
    let url = url.split(['?', '#']).next().unwrap_or_default();
    match (url.find("://"), url.rfind('@')) {
        (Some(scheme), Some(at)) if at > scheme => {
            format!("{}{}", &url[..scheme + 3], &url[at + 1..])
        }
        _ => url.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_shown_without_its_login() {
        assert_eq!(shown("http://me:hush@host:5000/x"), "http://host:5000/x");
        assert_eq!(shown("http://host"), "http://host");
        assert_eq!(shown("http://host/x?token=hush"), "http://host/x");
        assert_eq!(sanitize_key("request.extra.foo(é)"), "request.extra.foo___");
    }
}
