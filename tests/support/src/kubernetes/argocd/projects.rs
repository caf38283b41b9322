//! The commands of the CLI for service accounts of projects.

use serde_json::Value;

use super::Cli;

/// The server of the project's first entry.
const SERVER: &str = "https://kubernetes.default.svc";

impl Cli {
    /// Asserts that the commands for destination service accounts of projects work, with the same
    /// results as `other` shows.
    ///
    /// # Panics
    /// If one does not.
    pub async fn assert_destination_service_accounts(&self, other: &Self) {
        let shown = ["proj", "get", "accounts", "-o", "json"];
        let accounts = async || {
            self.assert_same_output(other, &shown).await;
            let project: Value = serde_json::from_str(&self.succeed(&shown).await).expect("JSON");
            let entries = project["spec"]["destinationServiceAccounts"].as_array().cloned();
            let account = |entry: Value| entry["defaultServiceAccount"].as_str().map(str::to_owned);
            entries
                .unwrap_or_default()
                .into_iter()
                .map(account)
                .collect::<Option<Vec<String>>>()
        };
        let of = |names: &[&str]| Some(names.iter().map(|&name| name.to_owned()).collect::<Vec<String>>());
        let one = format!("{SERVER},shop,deployer");
        let options = [
            "--dest-service-accounts",
            &one,
            "--dest-service-accounts",
            "*,*,infra:runner",
        ];
        self.succeed(&[&["proj", "create", "accounts"][..], &options].concat())
            .await;
        assert_eq!(accounts().await, of(&["deployer", "infra:runner"]));

        let entry = ["accounts", SERVER, "cart", "other"];
        let add = [&["proj", "add-destination-service-account"][..], &entry].concat();
        self.succeed(&add).await;
        assert_eq!(accounts().await, of(&["deployer", "infra:runner", "other"]));
        let again = self.run(&add).await;
        assert!(
            !again.status.success() && again.stderr.contains("already defined"),
            "{}",
            again.stderr
        );

        let remove = [&["proj", "remove-destination-service-account"][..], &entry].concat();
        self.succeed(&remove).await;
        assert_eq!(accounts().await, of(&["deployer", "infra:runner"]));
        let absent = self.run(&remove).await;
        assert!(
            !absent.status.success() && absent.stderr.contains("does not exist"),
            "{}",
            absent.stderr
        );

        self.succeed(&["proj", "set", "accounts", "--dest-service-accounts", &one])
            .await;
        assert_eq!(accounts().await, of(&["deployer"]));
        self.succeed(&["proj", "delete", "accounts"]).await;
    }
}
