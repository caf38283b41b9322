//! Tests that errors about a kubeconfig name the problem and show none of its secrets.

use std::fs;

use super::connect;
use tollgate_config::KubernetesState;

const TOKEN: &str = "hunter2-token";

async fn refused(kubeconfig: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("kubeconfig");
    fs::write(&file, kubeconfig).unwrap();
    let settings = KubernetesState {
        kubeconfig: Some(file.clone()),
        ..KubernetesState::default()
    };
    let message = match connect(&settings).await {
        Ok(_) => panic!("the kubeconfig is accepted"),
        Err(message) => message,
    };
    assert!(!message.contains("hunter2"), "{message}");
    assert!(!message.contains('\n'), "{message}");
    message.replace(&*file.to_string_lossy(), "FILE")
}

fn with_user(user: &str) -> String {
    format!(
        "{{apiVersion: v1, kind: Config, current-context: c, \
         contexts: [{{name: c, context: {{cluster: c, user: u}}}}], \
         clusters: [{{name: c, cluster: {{server: 'http://127.0.0.1:1'}}}}], \
         users: [{{name: u, user: {user}}}]}}\n"
    )
}

#[tokio::test]
async fn errors_do_not_repeat_lines_of_the_kubeconfig() {
    let broken = format!("apiVersion: v1\nusers:\n- name: u\n  user:\n    token: {TOKEN}\n   bad: [{TOKEN}\n");
    assert_eq!(
        refused(&broken).await,
        "the kubeconfig `FILE` cannot be used: it is no YAML of a kubeconfig"
    );
    let odd = with_user(&format!("{{token: [{TOKEN}]}}"));
    assert_eq!(
        refused(&odd).await,
        "the kubeconfig `FILE` cannot be used: it is no YAML of a kubeconfig"
    );
    let context = with_user("{}").replace("current-context: c", &format!("current-context: {TOKEN}"));
    assert_eq!(
        refused(&context).await,
        "the kubeconfig `FILE` cannot be used: it has no such context"
    );
}

#[tokio::test]
async fn errors_do_not_repeat_output_of_a_credential_plugin() {
    let plugin = |script: &str| {
        with_user(&format!(
            "{{exec: {{apiVersion: client.authentication.k8s.io/v1, interactiveMode: Never, \
             command: /bin/sh, args: ['-c', '{script}']}}}}"
        ))
    };
    assert_eq!(
        refused(&plugin(&format!("echo {TOKEN}; echo {TOKEN} >&2; exit 3"))).await,
        "no client can be made: the credential plugin failed: exit status: 3"
    );
    assert_eq!(
        refused(&plugin(&format!("echo {TOKEN}"))).await,
        "no client can be made: the credential plugin's answer is no ExecCredential"
    );
}
