//! MLflow, by its REST API 2.0: a run, with a nested run for each case where there are several.

use crate::tracking::run_summary::{CaseSummary, RunSummary};
use crate::tracking::{TrackError, list_files};
use llmscen_core::track::Mlflow;
use reqwest::{Client, RequestBuilder, StatusCode, Url};
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;

/// What MLflow takes in one batch (`Log Batch` of its REST API), and the longest value of a parameter.
const METRICS: usize = 1000;
const PARAMS: usize = 100;
const LONGEST: usize = 500;
/// Being away must show within seconds; a file may take its time.
const CONNECT: Duration = Duration::from_secs(5);
const ANSWER: Duration = Duration::from_secs(120);
/// Where a server passes artefacts on to its store.
const PROXY: &str = "mlflow-artifacts:";

/// Tells the server of a run; returns where it is to be seen.
pub(super) fn send_to_mlflow(spec: &Mlflow, summary: &RunSummary, folder: &Path) -> Result<String, TrackError> {
    let setup = |error: &dyn std::fmt::Display| TrackError::Setup(error.to_string());
    // A runtime may already run on the calling thread.
    std::thread::scope(|scope| {
        let worker = scope.spawn(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|error| setup(&error))?;
            runtime.block_on(Server::new(spec)?.send_run(summary, folder))
        });
        worker.join().unwrap_or_else(|_| Err(TrackError::Setup("its thread stopped unexpectedly".into())))
    })
}

struct Server<'a> {
    spec: &'a Mlflow,
    client: Client,
    base: Url,
}

impl<'a> Server<'a> {
    fn new(spec: &'a Mlflow) -> Result<Server<'a>, TrackError> {
        let base = Url::parse(&spec.url).map_err(|error| TrackError::Setup(format!("`{}`: {error}", shown(&spec.url))))?;
        let client = Client::builder().connect_timeout(CONNECT).timeout(ANSWER).build();
        Ok(Server { spec, client: client.map_err(|error| TrackError::Setup(error.to_string()))?, base })
    }

    async fn send_run(&self, summary: &RunSummary, folder: &Path) -> Result<String, TrackError> {
        let experiment = self.experiment().await?;
        let (run, store) = self.begin(&experiment, &summary.whole, summary, None).await?;
        match self.fill(&experiment, (&run, &store), summary, folder).await {
            Ok(()) => self.end(&run, summary, ended(summary)).await?,
            Err(error) => {
                // What went wrong is said; that the run cannot even be ended would add nothing to it.
                let _ = self.end(&run, summary, FAILED).await;
                return Err(error);
            }
        }
        Ok(format!("{}/#/experiments/{experiment}/runs/{run}", shown(&self.spec.url).trim_end_matches('/')))
    }

    /// Puts everything into a run that has begun, and its cases below it.
    async fn fill(
        &self,
        experiment: &str,
        (run, store): (&str, &str),
        summary: &RunSummary,
        folder: &Path,
    ) -> Result<(), TrackError> {
        self.log(run, &summary.whole, summary.ended_ms).await?;
        for case in &summary.cases {
            let (nested, _) = self.begin(experiment, case, summary, Some(run)).await?;
            let logged = self.log(&nested, case, summary.ended_ms).await;
            self.end(&nested, summary, if logged.is_ok() { ended(summary) } else { FAILED }).await?;
            logged?;
        }
        let files = list_files(folder, self.spec.files)?;
        if !files.is_empty() && !store.starts_with(PROXY) {
            return Err(TrackError::Store(store.to_owned()));
        }
        for (name, path) in files {
            let bytes = std::fs::read(&path).map_err(|source| TrackError::File { path: path.clone(), source })?;
            self.upload(store, &name, bytes).await?;
        }
        Ok(())
    }

    /// The id of the experiment, made where there is none of its name.
    async fn experiment(&self) -> Result<String, TrackError> {
        let name = &self.spec.experiment;
        let mut url = self.at("api/2.0/mlflow/experiments/get-by-name")?;
        url.query_pairs_mut().append_pair("experiment_name", name);
        let asked = self.with_login(self.client.get(url));
        let found = match self.answer("experiments/get-by-name", asked).await {
            Err(TrackError::Refused { status: 404, .. }) => None,
            other => Some(text(&other?, "/experiment/experiment_id", "experiments/get-by-name")?),
        };
        match found {
            Some(id) => Ok(id),
            None => {
                let made = self.post("experiments/create", json!({ "name": name })).await?;
                text(&made, "/experiment_id", "experiments/create")
            }
        }
    }

    /// A run: its id, and where its files go.
    async fn begin(
        &self,
        experiment: &str,
        entry: &CaseSummary,
        summary: &RunSummary,
        parent: Option<&str>,
    ) -> Result<(String, String), TrackError> {
        let tag = |key: &str, value: &str| json!({ "key": key, "value": value });
        let mut tags = vec![tag("llmscen.run_id", &summary.run_id), tag("llmscen.verdict", summary.verdict)];
        tags.extend(self.spec.tags.iter().map(|(key, value)| tag(key, value)));
        tags.extend(parent.map(|parent| tag("mlflow.parentRunId", parent)));
        let asked = json!({
            "experiment_id": experiment, "run_name": entry.name, "start_time": summary.started_ms, "tags": tags,
        });
        let made = self.post("runs/create", asked).await?;
        Ok((text(&made, "/run/info/run_id", "runs/create")?, text(&made, "/run/info/artifact_uri", "runs/create")?))
    }

    /// Parameters and metrics. A metric has one point, at the end of the run: `step` 0, `at_ms` in milliseconds since the epoch.
    async fn log(&self, run: &str, entry: &CaseSummary, at_ms: u64) -> Result<(), TrackError> {
        let params =
            entry.params.iter().map(|(key, value)| json!({ "key": key_of(key), "value": cut(value) })).collect::<Vec<_>>();
        for chunk in params.chunks(PARAMS) {
            self.post("runs/log-batch", json!({ "run_id": run, "params": chunk })).await?;
        }
        let metric = |(key, value): &(String, f64)| json!({ "key": key, "value": value, "timestamp": at_ms, "step": 0 });
        let metrics: Vec<Value> = entry.metrics.iter().map(metric).collect();
        for chunk in metrics.chunks(METRICS) {
            self.post("runs/log-batch", json!({ "run_id": run, "metrics": chunk })).await?;
        }
        Ok(())
    }

    async fn end(&self, run: &str, summary: &RunSummary, status: &str) -> Result<(), TrackError> {
        let asked = json!({ "run_id": run, "status": status, "end_time": summary.ended_ms });
        self.post("runs/update", asked).await.map(drop)
    }

    async fn upload(&self, store: &str, name: &str, bytes: Vec<u8>) -> Result<(), TrackError> {
        let path = store.trim_start_matches(PROXY).trim_start_matches('/');
        // The address may name a host of its own: mlflow-artifacts://host/path.
        let path =
            if store.starts_with("mlflow-artifacts://") { path.split_once('/').map_or(path, |(_, path)| path) } else { path };
        let url = self.at(&format!("api/2.0/mlflow-artifacts/artifacts/{path}/{name}"))?;
        let asked = self.with_login(self.client.put(url).body(bytes));
        self.answer(&format!("the file {name}"), asked).await.map(drop)
    }

    async fn post(&self, what: &str, body: Value) -> Result<Value, TrackError> {
        let asked = self.client.post(self.at(&format!("api/2.0/mlflow/{what}"))?).header("content-type", "application/json");
        self.answer(what, self.with_login(asked.body(body.to_string()))).await
    }

    fn at(&self, path: &str) -> Result<Url, TrackError> {
        let mut url = self.base.clone();
        let base = url.path().trim_end_matches('/').to_owned();
        url.set_path(&format!("{base}/{path}"));
        Ok(url)
    }

    fn with_login(&self, asked: RequestBuilder) -> RequestBuilder {
        match (&self.spec.token, &self.spec.login) {
            (Some(token), _) => asked.bearer_auth(token.expose()),
            (None, Some((user, password))) => asked.basic_auth(user, Some(password.expose())),
            (None, None) => asked,
        }
    }

    async fn answer(&self, what: &str, asked: RequestBuilder) -> Result<Value, TrackError> {
        let unreachable = |error: reqwest::Error| TrackError::Unreachable {
            url: shown(&self.spec.url),
            reason: std::error::Error::source(&error).map_or_else(|| error.to_string(), |cause| deepest(cause).to_string()),
        };
        let answer = asked.send().await.map_err(unreachable)?;
        let status = answer.status();
        let body = answer.text().await.map_err(unreachable)?;
        let value: Option<Value> = serde_json::from_str(&body).ok();
        match value {
            Some(value) if status.is_success() => Ok(value),
            None if status.is_success() && body.trim().is_empty() => Ok(Value::Null),
            None if status.is_success() => Err(TrackError::Answer { what: what.to_owned() }),
            value => Err(refused(what, status, value, &body)),
        }
    }
}

fn refused(what: &str, status: StatusCode, value: Option<Value>, body: &str) -> TrackError {
    let said = value.as_ref().and_then(|value| value.get("message")).and_then(Value::as_str).unwrap_or(body);
    TrackError::Refused { what: what.to_owned(), status: status.as_u16(), message: cut(said.trim()) }
}

fn deepest<'e>(error: &'e (dyn std::error::Error + 'static)) -> &'e (dyn std::error::Error + 'static) {
    error.source().map_or(error, deepest)
}

fn text(value: &Value, place: &str, what: &str) -> Result<String, TrackError> {
    let found = value.pointer(place).and_then(Value::as_str);
    found.map(str::to_owned).ok_or_else(|| TrackError::Answer { what: what.to_owned() })
}

fn cut(value: &str) -> String {
    value.chars().take(LONGEST).collect()
}

/// The status of a run of which not everything could be told.
const FAILED: &str = "FAILED";

/// The status of a run that was told whole.
fn ended(summary: &RunSummary) -> &'static str {
    if summary.finished { "FINISHED" } else { "KILLED" }
}

/// A name of the letters that MLflow takes.
fn key_of(name: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "_-. /:".contains(c) { c } else { '_' };
    name.chars().map(plain).collect()
}

/// An address without its login and its parameters, which may be secret.
fn shown(url: &str) -> String {
    let url = url.split(['?', '#']).next().unwrap_or_default();
    match (url.find("://"), url.rfind('@')) {
        (Some(scheme), Some(at)) if at > scheme => format!("{}{}", &url[..scheme + 3], &url[at + 1..]),
        _ => url.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_shown_without_its_login() {
        assert_eq!(shown("http://me:hush@host:5000/x"), "http://host:5000/x");
        assert_eq!(shown("http://host"), "http://host");
        assert_eq!(shown("http://host/x?token=hush"), "http://host/x");
        assert_eq!(key_of("request.extra.foo(é)"), "request.extra.foo___");
    }
}
