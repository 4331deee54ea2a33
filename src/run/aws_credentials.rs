//! Credentials of AWS: from the environment, or from a profile of the shared files.

use crate::run::context::Context;
use llmscen_core::api_key::{AwsCredentials, AwsSigning};
use llmscen_core::redact::Secret;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// Interval at which the shared files are read again: other tools replace temporary keys in them.
pub(crate) const REREAD: Duration = Duration::from_secs(60);
/// Interval of `credential_process` if its keys do not expire.
const WITHOUT_EXPIRY: Duration = Duration::from_secs(30 * 60);
/// Time before the expiry of keys at which new ones are obtained.
const BEFORE_EXPIRY: Duration = Duration::from_secs(5 * 60);
/// Minimum time between two calls of `credential_process`.
const MIN_INTERVAL: Duration = Duration::from_secs(10);

/// Where the credentials of a target are looked for.
pub(crate) struct AwsSource {
    region: Option<String>,
    profile: Option<String>,
    env: BTreeMap<String, String>,
    /// The start of the run on the monotonic clock, and in nanoseconds since the Unix epoch.
    origin: Instant,
    wall_ns: u64,
}

/// What was found.
pub(crate) enum Loaded {
    Keys(AwsCredentials),
    /// A command that prints the keys.
    Process {
        argv: Vec<String>,
        region: String,
    },
}

/// The output of `credential_process`.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ProcessOutput {
    access_key_id: String,
    secret_access_key: String,
    session_token: Option<String>,
    expiration: Option<String>,
}

/// The keys of one section of a shared file.
type Section = BTreeMap<String, String>;

impl AwsSource {
    pub fn new(signing: &AwsSigning, context: &Context) -> AwsSource {
        let wanted = |name: &str| name.starts_with("AWS_") || name == "HOME";
        let env = context.env.iter().filter(|(name, _)| wanted(name));
        AwsSource {
            region: signing.region.clone(),
            profile: signing.profile.clone(),
            env: env
                .map(|(name, value)| (name.clone(), value.clone()))
                .collect(),
            origin: context.origin,
            wall_ns: context.wall_ns,
        }
    }

    /// Looks for credentials: in the environment, unless the scenario names a profile, then in the shared files.
    ///
    /// # Errors
    /// Where was looked, and what is missing.
    pub fn load(&self) -> Result<Loaded, String> {
        let profile = self
            .profile
            .as_deref()
            .or(self.variable("AWS_PROFILE"))
            .unwrap_or("default");
        let credentials = self.file("AWS_SHARED_CREDENTIALS_FILE", "credentials");
        let config = self.file("AWS_CONFIG_FILE", "config");
        let section = |file: &Option<PathBuf>, in_config: bool| match file {
            None => Ok(Section::default()),
            Some(path) => read_section(path, profile, in_config),
        };
        let of_credentials = section(&credentials, false)?;
        let of_config = section(&config, true)?;
        let setting = |name: &str| {
            let found = of_credentials.get(name).or_else(|| of_config.get(name));
            found.map(String::as_str).filter(|value| !value.is_empty())
        };
        let keys = match self.variable("AWS_ACCESS_KEY_ID") {
            Some(id) if self.profile.is_none() => {
                let secret = self.variable("AWS_SECRET_ACCESS_KEY").ok_or(
                    "AWS_ACCESS_KEY_ID is set, but AWS_SECRET_ACCESS_KEY is not\n  \
                     help: set both, or none of them to use a profile",
                )?;
                Some((id, secret, self.variable("AWS_SESSION_TOKEN")))
            }
            _ => setting("aws_access_key_id")
                .zip(setting("aws_secret_access_key"))
                .map(|(id, secret)| (id, secret, setting("aws_session_token"))),
        };
        let process = setting("credential_process").filter(|_| keys.is_none());
        if keys.is_none() && process.is_none() {
            let is_known = !of_credentials.is_empty() || !of_config.is_empty();
            return Err(self.describe_missing(profile, is_known, &[credentials, config]));
        }
        let region = self
            .region
            .as_deref()
            .or_else(|| self.variable("AWS_REGION"))
            .or_else(|| self.variable("AWS_DEFAULT_REGION"))
            .or_else(|| setting("region"))
            .ok_or_else(|| {
                format!(
                    "no region of AWS: neither the host name in target.url, nor AWS_REGION, \
                     AWS_DEFAULT_REGION or the profile `{profile}` has one\n  \
                     help: set target.aws.region"
                )
            })?
            .to_owned();
        if let Some(command) = process {
            let argv = shell_words::split(command)
                .map_err(|error| format!("credential_process of profile `{profile}`: {error}"))?;
            return Ok(Loaded::Process { argv, region });
        }
        let (id, secret, token) = keys.unwrap_or_default();
        check(id, secret, token)?;
        Ok(Loaded::Keys(new_credentials(id, secret, token, region)))
    }

    /// Credentials from the output of `credential_process`, and the time until it is called again.
    ///
    /// # Errors
    /// The output is not as specified. The error does not contain it.
    pub fn parse_process(
        &self,
        printed: &str,
        region: String,
    ) -> Result<(AwsCredentials, Duration), String> {
        let output: ProcessOutput = serde_json::from_str(printed).map_err(|_| {
            "its output must be JSON with `AccessKeyId` and `SecretAccessKey`".to_owned()
        })?;
        let (id, secret) = (&output.access_key_id, &output.secret_access_key);
        let token = output.session_token.as_deref();
        check(id, secret, token)?;
        let every = match &output.expiration {
            None => WITHOUT_EXPIRY,
            Some(text) => {
                let at = OffsetDateTime::parse(text, &Rfc3339)
                    .map_err(|_| "its `Expiration` is not a time of ISO 8601".to_owned())?;
                let now = i128::from(self.wall_ns) + self.origin.elapsed().as_nanos() as i128;
                let left = u64::try_from(at.unix_timestamp_nanos() - now)
                    .map_err(|_| "its keys have expired".to_owned())?;
                let left = Duration::from_nanos(left);
                left.saturating_sub(BEFORE_EXPIRY).max(MIN_INTERVAL)
            }
        };
        Ok((new_credentials(id, secret, token, region), every))
    }

    fn variable(&self, name: &str) -> Option<&str> {
        let value = self.env.get(name).map(String::as_str);
        value.filter(|value| !value.is_empty())
    }

    /// A shared file: its variable, or its place in the home folder.
    fn file(&self, variable: &str, name: &str) -> Option<PathBuf> {
        let in_home = || {
            let home = self.variable("HOME")?;
            Some(PathBuf::from(home).join(".aws").join(name))
        };
        self.variable(variable).map(PathBuf::from).or_else(in_home)
    }

    fn describe_missing(&self, profile: &str, is_known: bool, files: &[Option<PathBuf>]) -> String {
        let files: Vec<String> = files
            .iter()
            .flatten()
            .map(|path| path.display().to_string())
            .collect();
        let files = files.join(" and ");
        let env = match self.profile {
            None => "the environment has no AWS_ACCESS_KEY_ID, and ",
            Some(_) => "",
        };
        if is_known {
            return format!(
                "no credentials of AWS: {env}the profile `{profile}` in {files} has neither \
                 aws_access_key_id with aws_secret_access_key nor credential_process\n  help: a profile of \
                 single sign-on or of a role needs \
                 `credential_process = aws configure export-credentials --profile {profile}` in a profile \
                 of another name"
            );
        }
        format!(
            "no credentials of AWS: {env}there is no profile `{profile}` in {files}\n  help: set \
             AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or name an existing profile in target.aws.profile"
        )
    }
}

fn new_credentials(id: &str, secret: &str, token: Option<&str>, region: String) -> AwsCredentials {
    AwsCredentials {
        access_key_id: Secret::new(id),
        secret_access_key: Secret::new(secret),
        session_token: token.map(Secret::new),
        region,
    }
}

/// Checks that the parts that are sent fit into a header. The error does not contain them.
fn check(id: &str, secret: &str, token: Option<&str>) -> Result<(), String> {
    for (name, text) in [
        ("access key id", Some(id)),
        ("secret access key", Some(secret)),
        ("session token", token),
    ] {
        let Some(text) = text else { continue };
        if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(format!(
                "the {name} of AWS is empty, or contains spaces or characters outside of ASCII"
            ));
        }
    }
    Ok(())
}

/// The section of a profile; empty if there is no such file or section. In the config file, its name is `profile NAME`.
fn read_section(path: &PathBuf, profile: &str, in_config: bool) -> Result<Section, String> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(find_section(&text, profile, in_config)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Section::default()),
        Err(error) => Err(format!("cannot read {}: {error}", path.display())),
    }
}

fn find_section(text: &str, profile: &str, in_config: bool) -> Section {
    let mut section = Section::default();
    let mut inside = false;
    for line in text.lines() {
        if let Some(header) = line.trim().strip_prefix('[') {
            let name = header.split(']').next().unwrap_or_default().trim();
            let named = match name.strip_prefix("profile ") {
                Some(named) if in_config => Some(named.trim()),
                _ => Some(name).filter(|name| !in_config || *name == "default"),
            };
            inside = named == Some(profile);
        } else if inside
            // Indented lines are settings of another setting.
            && !line.starts_with([' ', '\t', '#', ';'])
            && let Some((name, value)) = line.split_once('=')
        {
            section.insert(name.trim().to_lowercase(), value.trim().to_owned());
        }
    }
    section
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    const CREDENTIALS: &str = "# shared\n[default]\naws_access_key_id = AKIDDEFAULT\n\
        aws_secret_access_key = secret-of-default\n\n[dev]\naws_access_key_id=AKIDDEV\n\
        AWS_SECRET_ACCESS_KEY =  secret=of+dev \naws_session_token = token-of-dev==\n";
    const CONFIG: &str = "[default]\nregion = eu-west-1\n[profile dev]\nregion = us-west-2\ns3 =\n  \
        region = nested\n[profile sso]\nsso_session = s\n[profile process]\nregion = eu-central-1\n\
        credential_process = print-keys --for 'a b'\n[dev]\nregion = not-a-profile\n";

    struct Home(tempfile::TempDir);

    impl Home {
        fn new() -> Home {
            let home = Home(tempfile::tempdir().unwrap());
            fs::create_dir(home.0.path().join(".aws")).unwrap();
            home.file("credentials", CREDENTIALS);
            home.file("config", CONFIG);
            home
        }

        fn file(&self, name: &str, text: &str) {
            fs::write(self.0.path().join(".aws").join(name), text).unwrap();
        }

        fn source(&self, profile: Option<&str>, env: &[(&str, &str)]) -> AwsSource {
            let home = self.0.path().to_str().unwrap();
            let env = env.iter().copied().chain([("HOME", home)]);
            AwsSource {
                region: None,
                profile: profile.map(str::to_owned),
                env: env
                    .map(|(name, value)| (name.to_owned(), value.to_owned()))
                    .collect(),
                origin: Instant::now(),
                wall_ns: 1_440_938_160_000_000_000,
            }
        }

        /// The parts of the found credentials.
        fn found(&self, profile: Option<&str>, env: &[(&str, &str)]) -> String {
            match self.source(profile, env).load() {
                Ok(Loaded::Keys(found)) => describe(&found),
                Ok(Loaded::Process { argv, region }) => format!("{argv:?} {region}"),
                Err(why) => why.replace(self.0.path().to_str().unwrap(), "HOME"),
            }
        }
    }

    fn describe(found: &AwsCredentials) -> String {
        let token = found.session_token.as_ref().map_or("-", Secret::expose);
        let (id, secret) = (&found.access_key_id, &found.secret_access_key);
        format!(
            "{} {} {token} {}",
            id.expose(),
            secret.expose(),
            found.region
        )
    }

    #[test]
    fn the_environment_comes_before_the_shared_files_unless_a_profile_is_named() {
        let home = Home::new();
        let keys = [
            ("AWS_ACCESS_KEY_ID", "AKIDENV"),
            ("AWS_SECRET_ACCESS_KEY", "secret-env"),
        ];
        let with = |more: &[(&'static str, &'static str)]| [&keys[..], more].concat();
        assert_eq!(home.found(None, &keys), "AKIDENV secret-env - eu-west-1");
        assert_eq!(
            home.found(
                None,
                &with(&[
                    ("AWS_SESSION_TOKEN", "t"),
                    ("AWS_DEFAULT_REGION", "us-east-2")
                ])
            ),
            "AKIDENV secret-env t us-east-2"
        );
        assert_eq!(
            home.found(
                None,
                &with(&[("AWS_REGION", "r-1"), ("AWS_DEFAULT_REGION", "us-east-2")])
            ),
            "AKIDENV secret-env - r-1"
        );
        assert_eq!(
            home.found(Some("dev"), &keys),
            "AKIDDEV secret=of+dev token-of-dev== us-west-2"
        );
        assert_eq!(
            home.found(None, &[]),
            "AKIDDEFAULT secret-of-default - eu-west-1"
        );
        assert_eq!(
            home.found(None, &[("AWS_PROFILE", "dev")]),
            "AKIDDEV secret=of+dev token-of-dev== us-west-2"
        );
        assert_eq!(
            home.found(Some("process"), &[]),
            "[\"print-keys\", \"--for\", \"a b\"] eu-central-1"
        );
        assert!(
            home.found(None, &keys[..1])
                .starts_with("AWS_ACCESS_KEY_ID is set, but")
        );
    }

    #[test]
    fn missing_credentials_name_the_places() {
        let home = Home::new();
        let first = |text: String| text.lines().next().unwrap_or_default().to_owned();
        assert_eq!(
            first(home.found(None, &[("AWS_PROFILE", "none")])),
            "no credentials of AWS: the environment has no AWS_ACCESS_KEY_ID, and there is no profile `none` in \
             HOME/.aws/credentials and HOME/.aws/config"
        );
        assert_eq!(
            first(home.found(
                Some("sso"),
                &[("AWS_SHARED_CREDENTIALS_FILE", "/no/such/file")]
            )),
            "no credentials of AWS: the profile `sso` in /no/such/file and HOME/.aws/config has neither \
             aws_access_key_id with aws_secret_access_key nor credential_process"
        );
        home.file("config", "");
        assert_eq!(
            first(home.found(Some("dev"), &[])),
            "no region of AWS: neither the host name in target.url, nor AWS_REGION, AWS_DEFAULT_REGION or the \
             profile `dev` has one"
        );
        home.file(
            "credentials",
            "[dev]\naws_access_key_id = A\naws_secret_access_key = a b\n",
        );
        assert_eq!(
            home.found(Some("dev"), &[("AWS_REGION", "r-1")]),
            "the secret access key of AWS is empty, or contains spaces or characters outside of ASCII"
        );
    }

    #[test]
    fn a_process_prints_keys_that_are_renewed_before_they_expire() {
        let home = Home::new();
        let source = home.source(None, &[]);
        let parse = |more: &str| {
            let keys = "\"Version\": 1, \"AccessKeyId\": \"AKID\", \"SecretAccessKey\": \"s\"";
            let parsed = source.parse_process(&format!("{{{keys}{more}}}"), "r-1".to_owned());
            parsed.map(|(found, every)| (describe(&found), every.as_secs().div_ceil(60)))
        };
        assert_eq!(parse(""), Ok(("AKID s - r-1".to_owned(), 30)));
        assert_eq!(
            parse(", \"SessionToken\": \"t\", \"Expiration\": \"2015-08-30T13:36:00Z\""),
            Ok(("AKID s t r-1".to_owned(), 55))
        );
        assert_eq!(
            parse(", \"Expiration\": \"2015-08-30T12:35:00Z\""),
            Err("its keys have expired".to_owned())
        );
        assert_eq!(
            parse(", \"Expiration\": \"soon\""),
            Err("its `Expiration` is not a time of ISO 8601".to_owned())
        );
        let broken = source
            .parse_process("no secret", String::new())
            .unwrap_err();
        assert_eq!(
            broken,
            "its output must be JSON with `AccessKeyId` and `SecretAccessKey`"
        );
    }
}
