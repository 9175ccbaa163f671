//! `lspan bugreport`, with secrets planted wherever it could find them.

use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

/// Planted where no report may have it.
const SECRETS: [&str; 6] = [
    "9f8e7d6c5b4a39281706f5e4d3c2b1a0",
    "planted-in-the-environment",
    "planted-in-a-command-line",
    "planted-in-a-token",
    "planted-in-an-url",
    "planted-in-a-key-file-of-ours",
];

#[test]
fn secrets_are_left_out_and_the_list_is_that_of_the_archive() {
    let dir = std::env::temp_dir().join(format!("lspan-bugreport-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(dir.join("config/linkspan")).unwrap();
    let psk = dir.join("cluster.psk");
    std::fs::write(&psk, SECRETS[0].repeat(2)).unwrap();
    std::fs::set_permissions(&psk, std::fs::Permissions::from_mode(0o600)).unwrap();
    std::fs::write(dir.join("config/linkspan/key"), format!("{}\n", SECRETS[5])).unwrap();
    // A process whose command line has one.
    let mut other =
        Command::new("sh").args(["-c", "read line", "sh", SECRETS[2]]).stdin(Stdio::piped()).spawn().unwrap();
    let archive = dir.join("report.tar");
    let report = |more: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lspan"));
        command.arg("bugreport").args(more).current_dir(&dir);
        command
            .env("XDG_CONFIG_HOME", dir.join("config"))
            .env("HOME", &dir)
            .env("LINKSPAN_PSK_FILE", &psk)
            .env("LINKSPAN_STATS_DIR", dir.join("stats"))
            .env("MY_SETTING", SECRETS[1])
            .env("NCCL_DEBUG_SUBSYS", SECRETS[0])
            .env("NCCL_MY_TOKEN", SECRETS[3])
            .env("NCCL_CONF_FILE", SECRETS[5])
            .env("NCCL_PROXY", format!("http:{}me:{}@proxy/", "//", SECRETS[4]))
            .env("NCCL_ALGO", "Ring");
        command.output().unwrap()
    };
    let output = report(&["--list"]);
    let listed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && listed.contains("doctor.json") && !listed.contains("written"), "{listed}");
    assert!(
        std::fs::read_dir(&dir).unwrap().all(|entry| !entry.unwrap().file_name().to_string_lossy().ends_with(".tar"))
    );
    let output = report(&["-o", archive.to_str().unwrap()]);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(std::fs::metadata(&archive).unwrap().permissions().mode() & 0o777, 0o600);
    let bytes = std::fs::read(&archive).unwrap();
    let text = String::from_utf8_lossy(&bytes).into_owned();
    for secret in SECRETS {
        assert!(
            !text.contains(secret),
            "{secret} is in the report: {:?}",
            text.split(secret).next().map(|before| &before[before.len().saturating_sub(200)..])
        );
    }
    let home = format!("{}/", dir.display());
    assert!(!text.contains(&home), "the home folder is named");
    for kept in [
        "NCCL_ALGO=Ring",
        "NCCL_MY_TOKEN=[removed]",
        "linkspan.doctor/1",
        "linkspan.status/1",
        "address lo 127.0.0.1/8",
        "/proc/sys/kernel/osrelease\t",
    ] {
        assert!(text.contains(kept), "{kept} is missing");
    }
    let list = Command::new("tar").arg("-tf").arg(&archive).output().unwrap();
    let names = String::from_utf8_lossy(&list.stdout).into_owned();
    let inside: Vec<&str> = names.lines().map(|line| line.rsplit('/').next().unwrap()).collect();
    let shown: Vec<&str> = said
        .lines()
        .skip(1)
        .take_while(|line| !line.is_empty())
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    assert_eq!(inside, shown);
    // What is there already is never written over.
    assert_eq!(report(&["-o", archive.to_str().unwrap()]).status.code(), Some(1));
    assert_eq!(std::fs::read(&archive).unwrap(), bytes);
    other.kill().unwrap();
    other.wait().unwrap();
    std::fs::remove_dir_all(&dir).unwrap();
}
