//! The generator's end of the TCP connections: source addresses, and closing without leftovers.
//!
//! Loopback has about 28,000 ports for each pair of source and destination address, so connections to loopback come from
//! many addresses of 127.0.0.0/8 in turn. Then no address ever has so many that choosing its port becomes a search,
//! which is why the choice can be made by the bind and IP_BIND_ADDRESS_NO_PORT is not needed. They close by reset, so
//! that no port stays in TIME_WAIT.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketFlags, SocketType, bind, connect, ipproto, socket_with, sockopt,
};

/// Source addresses in use; with 20,000 descriptors a process has at most 100 connections from each.
const SOURCE_COUNT: usize = 200;

/// Starts to connect, without blocking: the socket is writable when the connection is established or refused.
///
/// # Errors
/// The system refuses: descriptors have run out, or there is no route.
pub fn open(number: usize, to: SocketAddr) -> io::Result<TcpStream> {
    let family = match to {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP))?;
    sockopt::set_tcp_nodelay(&socket, true)?;
    // The last part of the handshake leaves with the request, as one segment, and the answers need no separate acks.
    sockopt::set_tcp_quickack(&socket, false)?;
    sockopt::set_socket_linger(&socket, Some(Duration::ZERO))?;
    if let Some(source) = source(number, to) {
        bind(&socket, &SocketAddrV4::new(source, 0))?;
    }
    match connect(&socket, &to) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(TcpStream::from(socket)),
        Err(error) => Err(error.into()),
    }
}

/// The source address of a connection; `None` leaves it to the system.
fn source(number: usize, to: SocketAddr) -> Option<Ipv4Addr> {
    match to.ip() {
        IpAddr::V4(address) if address.is_loopback() => {
            Some(Ipv4Addr::new(127, 0, 1, (number % SOURCE_COUNT) as u8 + 1))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn connections_come_from_several_addresses_and_close_by_reset() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let to = listener.local_addr().unwrap();
        let mut sources = Vec::new();
        for number in [0, 1, SOURCE_COUNT] {
            let client = open(number, to).unwrap();
            let (mut socket, from) = listener.accept().unwrap();
            sources.push(from.ip());
            drop(client);
            let error = socket.read(&mut [0]).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
        }
        assert_ne!(sources[0], sources[1]);
        assert_eq!(sources[0], sources[2]);
    }

    #[test]
    fn other_addresses_are_left_to_the_system() {
        assert_eq!(source(1, "10.0.0.1:1".parse().unwrap()), None);
        assert_eq!(source(1, "[::1]:1".parse().unwrap()), None);
    }
}
