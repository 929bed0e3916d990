//! Behaviour of every path of sends, and of the ring with a misbehaving kernel.

use super::*;
use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;

/// One sender of each kind. These tests need a kernel with `io_uring`.
fn senders() -> [Sender; 2] {
    [Sender::plain(), with_ring()]
}

fn with_ring() -> Sender {
    let sender = Sender::detect();
    let path = sender.path();
    assert_eq!(path, Path::Ring, "this machine has no io_uring to test");
    sender
}

/// A queue that few sockets fill.
const ENTRIES: usize = 32;

fn with_small_ring() -> Sender {
    let mut sender = with_ring();
    sender.ring = Some(Ring::with_entries(ENTRIES as u32).unwrap());
    sender
}

fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (listener.accept().unwrap().0, client)
}

fn pairs(count: usize) -> Vec<(TcpStream, TcpStream)> {
    (0..count).map(|_| pair()).collect()
}

fn submit(sender: &mut Sender, batch: SendBatch<'_>) -> Vec<Completion> {
    let mut completions = Vec::new();
    sender.submit(batch, &mut completions);
    completions
}

fn slice(bytes: &[u8]) -> std::iter::Once<IoSlice<'_>> {
    std::iter::once(IoSlice::new(bytes))
}

/// Sends each pair its own number, as one slice or as several in turns, and checks what arrives.
fn send_numbers(sender: &mut Sender, pairs: &mut [(TcpStream, TcpStream)]) {
    let texts: Vec<String> = (0..pairs.len())
        .map(|index| format!("{index:08}"))
        .collect();
    let mut batch = sender.batch();
    for (index, (server, _)) in pairs.iter().enumerate() {
        let text = texts[index].as_bytes();
        let parts = if index % 2 == 0 { 8 } else { 3 };
        batch.push(
            index as u32,
            server.as_fd(),
            text.chunks(parts).map(IoSlice::new),
        );
    }
    let completions = submit(sender, batch);
    assert_eq!(completions.len(), pairs.len());
    for (index, completion) in completions.into_iter().enumerate() {
        assert_eq!(completion.token, index as u32);
        assert_eq!(completion.result.unwrap(), 8);
    }
    for (index, (_, client)) in pairs.iter_mut().enumerate() {
        let mut received = [0; 8];
        client.read_exact(&mut received).unwrap();
        assert_eq!(received, texts[index].as_bytes(), "of connection {index}");
    }
}

#[test]
fn slices_arrive_in_order_and_completions_name_their_send() {
    for mut sender in senders() {
        let (server, mut client) = pair();
        let (other, _other_client) = pair();
        let mut batch = sender.batch();
        batch.push(
            7,
            server.as_fd(),
            [&b"one"[..], b"two"].into_iter().map(IoSlice::new),
        );
        batch.push(8, other.as_fd(), slice(b"x"));
        let sent: Vec<_> = submit(&mut sender, batch)
            .into_iter()
            .map(|completion| (completion.token, completion.result.unwrap()))
            .collect();
        assert_eq!(sent, [(7, 6), (8, 1)]);
        let mut received = [0; 6];
        client.read_exact(&mut received).unwrap();
        assert_eq!(&received, b"onetwo");
    }
}

#[test]
fn a_full_socket_is_reported_and_the_others_get_their_bytes() {
    for mut sender in senders() {
        let (full, _unread) = pair();
        let (other, mut client) = pair();
        let block = vec![0; 1 << 20];
        let mut short_sends = 0;
        let is_full = (0..64).any(|_| {
            let mut batch = sender.batch();
            batch.push(0, full.as_fd(), slice(&block));
            batch.push(1, other.as_fd(), slice(b"x"));
            let [of_full, of_other] = &submit(&mut sender, batch)[..] else {
                panic!("one completion for each send");
            };
            assert_eq!(*of_other.result.as_ref().unwrap(), 1);
            client.read_exact(&mut [0]).unwrap();
            match &of_full.result {
                Ok(sent) => {
                    short_sends += usize::from(*sent < block.len());
                    false
                }
                Err(error) => error.kind() == io::ErrorKind::WouldBlock,
            }
        });
        assert!(is_full, "64 MiB went into a socket that nobody reads");
        assert!(short_sends > 0, "the buffer ended between two sends");
    }
}

#[test]
fn a_short_send_of_several_slices_reports_its_bytes() {
    for mut sender in senders() {
        let (server, mut client) = pair();
        let (other, _other_client) = pair();
        let block: Vec<u8> = (0..1 << 20).map(|index| (index % 251) as u8).collect();
        let mut batch = sender.batch();
        let slices = block.chunks(100_000).cycle().take(220);
        batch.push(0, server.as_fd(), slices.map(IoSlice::new));
        batch.push(1, other.as_fd(), slice(b"x"));
        let sent = *submit(&mut sender, batch)[0].result.as_ref().unwrap();
        assert!(sent < 20 << 20, "{sent} bytes went into a socket at once");
        let mut received = vec![0; sent];
        client.read_exact(&mut received).unwrap();
        let expected = block.iter().cycle();
        assert!(
            received
                .iter()
                .zip(expected)
                .all(|(one, other)| one == other)
        );
        client.set_nonblocking(true).unwrap();
        let more = client.read(&mut [0]).unwrap_err();
        assert_eq!(more.kind(), io::ErrorKind::WouldBlock);
    }
}

#[test]
fn a_closed_peer_is_an_error_and_no_signal() {
    for mut sender in senders() {
        let (server, client) = pair();
        let (other, _other_client) = pair();
        drop(client);
        let error = (0..10_000).find_map(|_| {
            let mut batch = sender.batch();
            batch.push(0, server.as_fd(), slice(b"x"));
            batch.push(1, other.as_fd(), slice(b"x"));
            submit(&mut sender, batch).swap_remove(0).result.err()
        });
        let kind = error.expect("a closed peer is noticed").kind();
        assert!(
            matches!(
                kind,
                io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset
            ),
            "{kind}"
        );
    }
}

#[test]
fn more_slices_than_the_kernel_takes_are_cut() {
    for mut sender in senders() {
        let mut pairs = pairs(2);
        let mut batch = sender.batch();
        for (server, _) in &pairs {
            batch.push(
                0,
                server.as_fd(),
                std::iter::repeat_n(IoSlice::new(b"x"), SLICES_MAX + 10),
            );
        }
        for completion in submit(&mut sender, batch) {
            assert_eq!(completion.result.unwrap(), SLICES_MAX);
        }
        for (_, client) in &mut pairs {
            client.read_exact(&mut vec![0; SLICES_MAX]).unwrap();
        }
    }
}

#[test]
fn the_memory_of_a_batch_is_used_again() {
    for mut sender in senders() {
        let (server, _client) = pair();
        let mut batch = sender.batch();
        batch.push(
            0,
            server.as_fd(),
            std::iter::repeat_n(IoSlice::new(b"x"), 100),
        );
        let capacity = batch.slices.capacity();
        submit(&mut sender, batch);
        let batch = sender.batch();
        assert!(
            batch.is_empty() && batch.slices.capacity() == capacity && batch.sends.capacity() > 0
        );
    }
}

#[test]
fn more_sends_than_the_queue_has_entries_take_several_submissions() {
    let mut sender = with_small_ring();
    let mut pairs = pairs(2 * ENTRIES + 2);
    send_numbers(&mut sender, &mut pairs);
    assert_eq!(sender.submissions(), 3);
    send_numbers(&mut sender, &mut pairs[..ENTRIES]);
    assert_eq!(sender.submissions(), 4);
    assert_eq!(sender.path(), Path::Ring);
}

#[test]
fn all_sends_of_a_slice_fit_into_one_submission() {
    let mut sender = with_ring();
    let (server, mut client) = pair();
    let mut batch = sender.batch();
    for number in 0..SENDS_MAX {
        batch.push(number as u32, server.as_fd(), slice(b"x"));
    }
    let completions = submit(&mut sender, batch);
    assert_eq!(completions.len(), SENDS_MAX);
    let sent = completions.into_iter().map(|one| one.result.unwrap());
    client.read_exact(&mut vec![0; sent.sum()]).unwrap();
    assert_eq!(sender.submissions(), 1);
}

#[test]
fn few_sends_need_no_ring() {
    let mut sender = with_ring();
    send_numbers(&mut sender, &mut pairs(RING_SENDS_MIN - 1));
    assert_eq!(sender.submissions(), 0);
    send_numbers(&mut sender, &mut pairs(RING_SENDS_MIN));
    assert_eq!(sender.submissions(), 1);
}

#[test]
fn completions_that_overflow_their_queue_are_fetched() {
    let mut sender = with_small_ring();
    let ring = sender.ring.as_mut().unwrap();
    // The completion queue has twice the entries of the submission queue; fill it, so that no entry is free for the
    // sends.
    assert!(ring.overfill_completions(2) >= 2 * ENTRIES);
    send_numbers(&mut sender, &mut pairs(ENTRIES));
    assert_eq!(sender.path(), Path::Ring);
}

#[test]
fn a_kernel_that_is_interrupted_or_short_of_memory_is_asked_again() {
    let mut sender = with_ring();
    let mut pairs = pairs(10);
    for errno in [libc::EINTR, libc::EAGAIN, libc::EBUSY] {
        sender.ring.as_mut().unwrap().plant([errno; 3]);
        send_numbers(&mut sender, &mut pairs);
        assert_eq!(sender.path(), Path::Ring, "after error {errno}");
    }
}

#[test]
fn a_ring_that_fails_is_given_up_and_nothing_is_lost() {
    for errno in [libc::EBADF, libc::ENXIO, libc::EAGAIN, libc::EPERM] {
        let mut sender = with_ring();
        let mut pairs = pairs(10);
        send_numbers(&mut sender, &mut pairs);
        sender.ring.as_mut().unwrap().plant([errno; 100]);
        send_numbers(&mut sender, &mut pairs);
        let fault = RingFault {
            action: "io_uring_enter",
            errno,
        };
        assert_eq!(sender.path(), Path::WithoutRing(fault));
        let submissions = sender.submissions();
        send_numbers(&mut sender, &mut pairs);
        assert_eq!(sender.submissions(), submissions);
    }
}

#[test]
fn an_interrupted_send_is_done_again_and_others_are_final() {
    let check = |outcome: Outcome, expected: Option<Result<usize, io::ErrorKind>>| {
        let result = result(outcome).map(|result| result.map_err(|error| error.kind()));
        assert_eq!(result, expected, "{outcome:?}");
    };
    check(None, None);
    check(Some(-libc::EINTR), None);
    check(Some(0), Some(Ok(0)));
    check(Some(7), Some(Ok(7)));
    check(Some(-libc::EAGAIN), Some(Err(io::ErrorKind::WouldBlock)));
    check(Some(-libc::EPIPE), Some(Err(io::ErrorKind::BrokenPipe)));
}
