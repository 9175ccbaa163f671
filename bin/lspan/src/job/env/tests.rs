use super::*;

fn spark() -> Here {
    let setting = |name, value: &str| Setting { name, value: value.into(), why: "why".into() };
    Here {
        settings: vec![
            setting("LD_LIBRARY_PATH", "/home/me/.local/lib"),
            setting("NCCL_NET_PLUGIN", "linkspan"),
            setting("NCCL_NET", "linkspan"),
        ],
        env: [
            ("LINKSPAN_PSK_FILE", "/etc/linkspan/my psk"),
            ("LINKSPAN_STRICT", "1"),
            ("NCCL_NET", "linkspan"),
            ("NCCL_NET_PLUGIN", "linkspan"),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .to_vec(),
        files: vec!["/etc/linkspan/my psk".into()],
        plugin: Some("/home/me/my libs/libnccl-net-linkspan.so".into()),
        devices: vec!["/dev/infiniband".into(), "/dev/linkspan".into()],
        nvidia: true,
        amd: false,
        rdma: true,
        groups: vec![44, 105],
        broker: true,
        root: false,
    }
}

#[test]
fn words_of_a_shell_are_quoted() {
    assert_eq!(quoted("^=lo"), "^=lo");
    assert_eq!(quoted("a b"), "'a b'");
    assert_eq!(quoted("it's $HOME"), r"'it'\''s $HOME'");
    assert_eq!(quoted(""), "''");
}

#[test]
fn a_container_gets_devices_groups_limits_and_the_plugin() {
    let podman = container(&spark(), true);
    for part in [
        "--network host",
        "--device nvidia.com/gpu=all",
        "--device /dev/infiniband",
        "--ulimit host",
        "--group-add keep-groups",
        "-v '/home/me/my libs/libnccl-net-linkspan.so':/opt/linkspan/librccl-net-linkspan.so:ro",
        "-e LD_LIBRARY_PATH=/opt/linkspan",
        "-e NCCL_NET=linkspan",
        "-e NCCL_NET_PLUGIN=linkspan",
        "-e LINKSPAN_STRICT=1",
        "-v '/etc/linkspan/my psk':'/etc/linkspan/my psk':ro",
        "-e 'LINKSPAN_PSK_FILE=/etc/linkspan/my psk'",
        "-v /run/linkspan:/run/linkspan",
    ] {
        assert!(podman.contains(part), "{part}: {podman}");
    }
    assert!(!podman.contains(".local/lib\n"), "the host's folder is none of the container's: {podman}");
    let docker = container(&spark(), false);
    for part in ["--gpus all", "--ulimit memlock=-1:-1", "--group-add 44", "--group-add 105"] {
        assert!(docker.contains(part), "{part}: {docker}");
    }
    let spec = podman.split("<<'EOF'\n").nth(1).unwrap().split("\nEOF").next().unwrap();
    let spec: serde_json::Value = serde_json::from_str(spec).unwrap();
    assert_eq!(spec["kind"], "linkspan/host");
    // The engine takes what the device has, and refuses a device that has nothing.
    let edits = &spec["devices"][0]["containerEdits"];
    assert_eq!(edits["env"][0], "LD_LIBRARY_PATH=/opt/linkspan");
    assert_eq!(edits["mounts"][1]["containerPath"], "/opt/linkspan/librccl-net-linkspan.so");
    assert_eq!(edits["mounts"][2]["containerPath"], "/etc/linkspan/my psk");
}

#[test]
fn the_line_for_a_cdi_specification_has_what_the_specification_cannot() {
    for (podman, root, parts) in [
        (true, false, &["--device nvidia.com/gpu=all", "--ulimit host", "--group-add keep-groups"][..]),
        (true, true, &["--device nvidia.com/gpu=all", "--ulimit memlock=-1:-1", "--group-add 44 --group-add 105"]),
        (false, false, &["--gpus all", "--ulimit memlock=-1:-1", "--group-add 44 --group-add 105"]),
    ] {
        let text = container(&Here { root, ..spark() }, podman);
        let line = text.lines().find(|line| line.contains("--device linkspan/host=all IMAGE CMD")).unwrap();
        for part in parts {
            assert!(line.contains(part), "{part}: {line}");
        }
        assert!(!line.contains("/dev/infiniband") && !line.contains(" -e ") && !line.contains(" -v "), "{line}");
    }
}

#[test]
fn that_the_images_own_library_path_is_replaced_is_said() {
    for text in [container(&spark(), true), container(&spark(), false), k8s(&spark())] {
        let said = text.lines().find(|line| line.contains("replaces the image's own"));
        assert!(said.is_some_and(|line| line.contains("LD_LIBRARY_PATH")), "{text}");
    }
}

#[test]
fn a_host_without_anything_asks_for_nothing() {
    let bare = Here {
        plugin: None,
        files: vec![],
        devices: vec![],
        nvidia: false,
        rdma: false,
        groups: vec![],
        broker: false,
        ..spark()
    };
    let text = container(&bare, true);
    for part in ["--device", "ulimit", "group-add", "LD_LIBRARY_PATH", "-v "] {
        assert!(!text.split("\n\n").next().unwrap().contains(part), "{part}: {text}");
    }
    assert!(!sbatch(&bare).contains("ulimit -l"));
    assert!(!k8s(&bare).contains("IPC_LOCK"));
}

#[test]
fn a_toolbox_gets_the_plugin_from_its_host_and_not_its_libraries() {
    let text = toolbox(&spark());
    assert!(
        text.contains("ln -sf '/run/host/home/me/my libs/libnccl-net-linkspan.so' ~/.local/lib/linkspan/"),
        "{text}"
    );
    assert!(text.contains("export LD_LIBRARY_PATH=\"$HOME/.local/lib/linkspan"), "{text}");
    assert!(text.contains("export LINKSPAN_PSK_FILE='/run/host/etc/linkspan/my psk'"), "{text}");
}

#[test]
fn a_pod_and_a_batch_script() {
    let pod = k8s(&spark());
    for part in [
        "hostNetwork: true",
        "IPC_LOCK",
        "medium: Memory",
        "nvidia.com/gpu",
        "type: File",
        "value: \"linkspan\"",
        "name: LINKSPAN_STRICT, value: \"1\"",
        "mountPath: \"/etc/linkspan/my psk\"",
    ] {
        assert!(pod.contains(part), "{part}: {pod}");
    }
    let script = sbatch(&spark());
    assert!(script.starts_with("#!/bin/bash\n#SBATCH") && script.contains("srun lspan run -- "), "{script}");
}

#[test]
fn what_is_set_in_the_shell_already_goes_into_the_container_too() {
    let set =
        [("NCCL_NET", "linkspan"), ("LINKSPAN_PSK_FILE", "key"), ("NCCL_NET_PLUGIN", "linkspan"), ("PATH", "/bin")];
    let env = set.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let snapshot = Snapshot::read(linkspan_doctor::Sources { env: env.into(), ..linkspan_doctor::Sources::default() });
    let here = Here::look(&snapshot, &[], &Roots::default());
    let names: Vec<String> = here.with_plugin(None).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["LINKSPAN_PSK_FILE", "NCCL_NET", "NCCL_NET_PLUGIN"]);
    assert!(here.files[0].starts_with('/') && here.files[0].ends_with("/key"), "{:?}", here.files);
}
