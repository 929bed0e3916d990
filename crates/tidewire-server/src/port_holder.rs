//! The process that listens on a port, for the error of a process that wants the same port.

use std::fs::{read_dir, read_link, read_to_string};
use std::path::Path;

/// Names the process that listens on a TCP port, as in `nginx (process 4711)`. It is found on Linux only, and only if this process may
/// inspect it.
pub(crate) fn port_holder(port: u16) -> Option<String> {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"];
    let sockets: Vec<String> = tables
        .iter()
        .filter_map(|table| read_to_string(table).ok())
        .flat_map(|table| listening_sockets(&table, port))
        .collect();
    read_dir("/proc").ok()?.flatten().find_map(|entry| {
        let process = entry.path();
        let number: u32 = entry.file_name().to_str()?.parse().ok()?;
        let name = has_one_of(&process, &sockets).then(|| read_to_string(process.join("comm")))?;
        let name = name.unwrap_or_default();
        let name = name.trim().replace(|letter: char| letter.is_control(), "?");
        Some(format!("{name} (process {number})"))
    })
}

/// The sockets of a table of the kernel that listen on the port, as their links in `/proc/PROCESS/fd` name them.
fn listening_sockets(table: &str, port: u16) -> Vec<String> {
    const LISTENING: &str = "0A";
    let local_end = format!(":{port:04X}");
    let sockets = table.lines().skip(1).filter_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (local, state, inode) = (fields.get(1)?, fields.get(3)?, fields.get(9)?);
        let listens = local.ends_with(&local_end) && *state == LISTENING;
        listens.then(|| format!("socket:[{inode}]"))
    });
    sockets.collect()
}

fn has_one_of(process: &Path, sockets: &[String]) -> bool {
    let Ok(descriptors) = read_dir(process.join("fd")) else {
        return false;
    };
    descriptors.flatten().any(|descriptor| {
        let target = read_link(descriptor.path()).unwrap_or_default();
        sockets.iter().any(|socket| target == Path::new(socket))
    })
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn the_process_that_listens_is_named() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(address) else {
                continue;
            };
            let port = listener.local_addr().expect("a bound listener").port();
            let holder = port_holder(port).expect("this process is found");
            let this = format!("(process {})", std::process::id());
            assert!(holder.ends_with(&this), "{holder}");
        }
    }

    #[test]
    fn only_listening_sockets_of_the_port_count() {
        let table = "\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1784 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 71 1 0000000000000000 100 0 0 10 0
   1: 0100007F:1784 0100007F:D431 01 00000000:00000000 00:00000000 00000000     0        0 72 1 0000000000000000 20 4 30 10 -1
   2: 0100007F:1785 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 73 1 0000000000000000 100 0 0 10 0
";
        assert_eq!(listening_sockets(table, 6020), ["socket:[71]"]);
    }
}
