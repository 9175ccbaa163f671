//! Our structures against the headers of libibverbs, when both they and a C compiler are here.

use std::fmt::Write as _;
use std::mem::offset_of;
use std::process::Command;

use super::*;

/// One line of the probe: a C expression and what it must be.
struct Line(String, usize);

macro_rules! layout {
    ($out:ident; $($rust:ident = $c:literal { $($field:tt $(= $name:literal)?),* $(,)? })*) => {
        $(
            $out.push(Line(format!("sizeof({})", $c), size_of::<$rust>()));
            $($out.push(Line(
                format!("offsetof({}, {})", $c, layout!(@name $field $($name)?)),
                offset_of!($rust, $field),
            ));)*
        )*
    };
    (@name $field:tt $name:literal) => { $name };
    (@name $field:tt) => { stringify!($field) };
}

fn lines() -> Vec<Line> {
    let mut out = Vec::new();
    layout! { out;
        IbvGid = "union ibv_gid" { raw }
        IbvGidEntry = "struct ibv_gid_entry" { gid, gid_index, port_num, gid_type, ndev_ifindex }
        IbvDevice = "struct ibv_device" { _ops, node_type, transport_type, name, dev_name, dev_path, ibdev_path }
        IbvDeviceAttr = "struct ibv_device_attr" {
            fw_ver, node_guid, sys_image_guid, max_mr_size, page_size_cap, vendor_id, vendor_part_id, hw_ver, max_qp,
            max_qp_wr, device_cap_flags, max_sge, max_sge_rd, max_cq, max_cqe, max_mr, max_pd, max_qp_rd_atom,
            max_res_rd_atom, max_qp_init_rd_atom, atomic_cap, max_mw, max_ah, max_srq, max_pkeys, local_ca_ack_delay,
            phys_port_cnt,
        }
        IbvPortAttr = "struct ibv_port_attr" {
            state, max_mtu, active_mtu, gid_tbl_len, port_cap_flags, max_msg_sz, bad_pkey_cntr, qkey_viol_cntr,
            pkey_tbl_len, lid, sm_lid, lmc, max_vl_num, sm_sl, subnet_timeout, init_type_reply, active_width,
            active_speed, phys_state, link_layer, flags, port_cap_flags2,
        }
        IbvAsyncEvent = "struct ibv_async_event" { element, event_type }
        IbvWc = "struct ibv_wc" {
            wr_id, status, opcode, vendor_err, byte_len, imm_data, qp_num, src_qp, wc_flags, pkey_index, slid, sl,
            dlid_path_bits,
        }
        IbvPd = "struct ibv_pd" { context, handle }
        IbvMr = "struct ibv_mr" { context, pd, addr, length, handle, lkey, rkey }
        IbvGlobalRoute = "struct ibv_global_route" { dgid, flow_label, sgid_index, hop_limit, traffic_class }
        IbvAhAttr = "struct ibv_ah_attr" { grh, dlid, sl, src_path_bits, static_rate, is_global, port_num }
        IbvQpCap = "struct ibv_qp_cap" { max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline_data }
        IbvQpInitAttr = "struct ibv_qp_init_attr" { qp_context, send_cq, recv_cq, srq, cap, qp_type, sq_sig_all }
        IbvQpAttr = "struct ibv_qp_attr" {
            qp_state, cur_qp_state, path_mtu, path_mig_state, qkey, rq_psn, sq_psn, dest_qp_num, qp_access_flags, cap,
            ah_attr, alt_ah_attr, pkey_index, alt_pkey_index, en_sqd_async_notify, sq_draining, max_rd_atomic,
            max_dest_rd_atomic, min_rnr_timer, port_num, timeout, retry_cnt, rnr_retry, alt_port_num, alt_timeout,
            rate_limit,
        }
        IbvSge = "struct ibv_sge" { addr, len = "length", lkey }
        IbvSendWr = "struct ibv_send_wr" {
            wr_id, next, sg_list, num_sge, opcode, send_flags, imm_data, wr, remote_srqn = "qp_type.xrc.remote_srqn",
            bind_mw,
        }
        IbvRecvWr = "struct ibv_recv_wr" { wr_id, next, sg_list, num_sge }
        IbvQp = "struct ibv_qp" {
            context, qp_context, pd, send_cq, recv_cq, srq, handle, qp_num, state, qp_type, mutex, cond,
            events_completed,
        }
        IbvCompChannel = "struct ibv_comp_channel" { context, fd, refcnt }
        IbvCq = "struct ibv_cq" {
            context, channel, cq_context, handle, cqe, mutex, cond, comp_events_completed, async_events_completed,
        }
        IbvContextOps = "struct ibv_context_ops" {
            poll_cq, req_notify_cq, post_send, post_recv,
        }
        IbvContext = "struct ibv_context" { device, ops, cmd_fd, async_fd, num_comp_vectors, mutex, abi_compat }
    }
    let rdma = offset_of!(IbvSendWr, wr);
    out.push(Line("offsetof(struct ibv_send_wr, wr.rdma.remote_addr)".into(), rdma));
    out.push(Line("offsetof(struct ibv_send_wr, wr.rdma.rkey)".into(), rdma + offset_of!(IbvWrUnion, rkey)));
    for (name, value) in [
        ("IBV_QPT_RC", QPT_RC),
        ("IBV_QP_STATE", QP_STATE),
        ("IBV_QP_ACCESS_FLAGS", QP_ACCESS_FLAGS),
        ("IBV_QP_PKEY_INDEX", QP_PKEY_INDEX),
        ("IBV_QP_PORT", QP_PORT),
        ("IBV_QP_AV", QP_AV),
        ("IBV_QP_PATH_MTU", QP_PATH_MTU),
        ("IBV_QP_TIMEOUT", QP_TIMEOUT),
        ("IBV_QP_RETRY_CNT", QP_RETRY_CNT),
        ("IBV_QP_RNR_RETRY", QP_RNR_RETRY),
        ("IBV_QP_RQ_PSN", QP_RQ_PSN),
        ("IBV_QP_MAX_QP_RD_ATOMIC", QP_MAX_QP_RD_ATOMIC),
        ("IBV_QP_MIN_RNR_TIMER", QP_MIN_RNR_TIMER),
        ("IBV_QP_SQ_PSN", QP_SQ_PSN),
        ("IBV_QP_MAX_DEST_RD_ATOMIC", QP_MAX_DEST_RD_ATOMIC),
        ("IBV_QP_DEST_QPN", QP_DEST_QPN),
        ("IBV_PORT_ACTIVE", PORT_ACTIVE),
    ] {
        out.push(Line(name.into(), value as usize));
    }
    for (name, value) in [
        ("IBV_QPS_RESET", QPS_RESET),
        ("IBV_QPS_INIT", QPS_INIT),
        ("IBV_QPS_RTR", QPS_RTR),
        ("IBV_QPS_RTS", QPS_RTS),
        ("IBV_QPS_ERR", QPS_ERR),
        ("IBV_WR_RDMA_WRITE", WR_RDMA_WRITE),
        ("IBV_WR_RDMA_WRITE_WITH_IMM", WR_RDMA_WRITE_WITH_IMM),
        ("IBV_WR_SEND", WR_SEND),
        ("IBV_WR_SEND_WITH_IMM", WR_SEND_WITH_IMM),
        ("IBV_WR_RDMA_READ", WR_RDMA_READ),
        ("IBV_SEND_SIGNALED", SEND_SIGNALED),
        ("IBV_SEND_SOLICITED", SEND_SOLICITED),
        ("IBV_SEND_INLINE", SEND_INLINE),
        ("IBV_WC_RDMA_READ", WC_RDMA_READ),
        ("IBV_WC_RECV", WC_RECV),
        ("IBV_WC_RECV_RDMA_WITH_IMM", WC_RECV_RDMA_WITH_IMM),
        ("IBV_WC_WITH_IMM", WC_WITH_IMM),
        ("IBV_LINK_LAYER_ETHERNET", u32::from(LINK_LAYER_ETHERNET)),
        ("IBV_GID_TYPE_IB", GID_TYPE_IB),
        ("IBV_GID_TYPE_ROCE_V1", GID_TYPE_ROCE_V1),
        ("IBV_ACCESS_LOCAL_WRITE|IBV_ACCESS_REMOTE_WRITE", crate::Access::REMOTE_WRITE.0),
        ("IBV_ACCESS_REMOTE_READ", crate::Access::REMOTE_READ.0),
        ("IBV_ACCESS_RELAXED_ORDERING", crate::Access::RELAXED.0),
        ("IBV_MTU_4096", crate::Mtu::B4096 as u32),
    ] {
        out.push(Line(name.into(), value as usize));
    }
    out
}

#[test]
fn structures_are_those_of_the_installed_headers() {
    let dir = std::env::temp_dir().join(format!("linkspan-verbs-abi-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("a temporary folder");
    let lines = lines();
    let mut c =
        String::from("#include <stddef.h>\n#include <stdio.h>\n#include <infiniband/verbs.h>\nint main(void) {\n");
    for Line(expression, _) in &lines {
        writeln!(c, "printf(\"%zu\\n\", (size_t)({expression}));").expect("a string grows");
    }
    c.push_str("return 0; }\n");
    let (source, program) = (dir.join("probe.c"), dir.join("probe"));
    std::fs::write(&source, c).expect("the probe is written");
    let headers = std::path::Path::new("/usr/include/infiniband/verbs.h").exists();
    let built = Command::new("gcc").arg("-w").arg(&source).arg("-o").arg(&program).output();
    let told = match built {
        Ok(out) if out.status.success() => {
            let out = Command::new(&program).output().expect("the probe runs");
            String::from_utf8(out.stdout).expect("numbers")
        }
        Ok(out) if headers => panic!("the probe does not build: {}", String::from_utf8_lossy(&out.stderr)),
        _ => {
            eprintln!("layouts: cannot be tested here: gcc or infiniband/verbs.h (Debian: libibverbs-dev) is missing");
            let _ = std::fs::remove_dir_all(&dir);
            return;
        }
    };
    let _ = std::fs::remove_dir_all(&dir);
    let told: Vec<usize> = told.lines().map(|l| l.parse().expect("a number")).collect();
    assert_eq!(told.len(), lines.len());
    let wrong: Vec<String> = std::iter::zip(&lines, told)
        .filter(|(Line(_, ours), theirs)| ours != theirs)
        .map(|(Line(what, ours), theirs)| format!("{what}: {ours} here, {theirs} in the header"))
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}
