//! The sends of a turn: collected, submitted together, their completions counted. Today each is one system call;
//! the shape is that of one submission for all.
//!
//! Every send carries MSG_DONTWAIT, so all of them are complete when [`Sender::submit`] returns and the bytes that
//! they borrowed are free again.

use std::io::{self, IoSlice};
use std::os::fd::{AsRawFd, BorrowedFd};

/// More slices than this are refused by the kernel (IOV_MAX); the rest goes with the next send.
pub const SLICES_MAX: usize = 1024;

/// Sends in one submission. Between two submissions the shard looks at its sockets and its mailbox.
pub const SENDS_MAX: usize = 2000;

/// Collected sends. What they borrow stays borrowed until they are submitted.
#[derive(Debug, Default)]
pub struct SendBatch<'a> {
    slices: Vec<IoSlice<'a>>,
    sends: Vec<Prepared<'a>>,
}

#[derive(Debug)]
struct Prepared<'a> {
    token: u32,
    socket: BorrowedFd<'a>,
    first: u32,
    count: u32,
}

/// How one send ended.
#[derive(Debug)]
pub struct Completion {
    /// As given with [`SendBatch::push`].
    pub token: u32,
    /// Bytes taken by the kernel; fewer than submitted, or `WouldBlock`, when its buffer is full.
    pub result: io::Result<usize>,
}

impl<'a> SendBatch<'a> {
    /// Adds a send of as many of `slices` as one send can carry.
    pub fn push(
        &mut self,
        token: u32,
        socket: BorrowedFd<'a>,
        slices: impl Iterator<Item = IoSlice<'a>>,
    ) {
        let first = self.slices.len();
        self.slices.extend(slices.take(SLICES_MAX));
        self.sends.push(Prepared {
            token,
            socket,
            first: first as u32,
            count: (self.slices.len() - first) as u32,
        });
    }

    /// How many sends were added.
    #[must_use]
    pub fn len(&self) -> usize {
        self.sends.len()
    }

    /// Whether nothing was added.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.sends.is_empty()
    }
}

/// Submits batches, and keeps their memory for the next one.
#[derive(Debug, Default)]
pub struct Sender {
    spare: SendBatch<'static>,
}

impl Sender {
    /// An empty batch in memory that was used before.
    pub fn batch<'a>(&mut self) -> SendBatch<'a> {
        recycle(std::mem::take(&mut self.spare))
    }

    /// Submits all sends and appends one completion for each, in their order.
    pub fn submit(&mut self, batch: SendBatch<'_>, completions: &mut Vec<Completion>) {
        for send in &batch.sends {
            let slices = &batch.slices[send.first as usize..][..send.count as usize];
            completions.push(Completion {
                token: send.token,
                result: send_slices(send.socket, slices),
            });
        }
        self.spare = recycle(batch);
    }
}

/// Empties a batch and gives its memory another lifetime. Collecting an emptied vector into one of the same layout
/// keeps its allocation.
fn recycle<'b>(mut batch: SendBatch<'_>) -> SendBatch<'b> {
    batch.slices.clear();
    batch.sends.clear();
    SendBatch {
        slices: batch
            .slices
            .into_iter()
            .map(|_| IoSlice::new(&[]))
            .collect(),
        sends: batch
            .sends
            .into_iter()
            .map(|_| unreachable!("the batch was emptied"))
            .collect(),
    }
}

/// One nonblocking send without a signal on a closed connection.
fn send_slices(socket: BorrowedFd<'_>, slices: &[IoSlice<'_>]) -> io::Result<usize> {
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    loop {
        let sent = if let [slice] = slices {
            // SAFETY: pointer and length are those of a live slice, which the call only reads.
            unsafe {
                libc::send(
                    socket.as_raw_fd(),
                    slice.as_ptr().cast(),
                    slice.len(),
                    flags,
                )
            }
        } else {
            // SAFETY: all-zero is a valid `msghdr`: no address, no buffers, no control data.
            let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
            message.msg_iov = slices.as_ptr().cast_mut().cast();
            message.msg_iovlen = slices.len() as _;
            // SAFETY: `IoSlice` has the layout of `iovec`; the array and all it points to live through the call, which
            // only reads them.
            unsafe { libc::sendmsg(socket.as_raw_fd(), &message, flags) }
        };
        if let Ok(sent) = usize::try_from(sent) {
            return Ok(sent);
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (listener.accept().unwrap().0, client)
    }

    fn submit(sender: &mut Sender, batch: SendBatch<'_>) -> Vec<Completion> {
        let mut completions = Vec::new();
        sender.submit(batch, &mut completions);
        completions
    }

    #[test]
    fn slices_arrive_in_order_and_completions_name_their_send() {
        let (server, mut client) = pair();
        let (other, _other_client) = pair();
        let mut sender = Sender::default();
        let mut batch = sender.batch();
        batch.push(
            7,
            server.as_fd(),
            [&b"one"[..], b"two"].into_iter().map(IoSlice::new),
        );
        batch.push(8, other.as_fd(), std::iter::once(IoSlice::new(b"x")));
        let sent: Vec<_> = submit(&mut sender, batch)
            .into_iter()
            .map(|completion| (completion.token, completion.result.unwrap()))
            .collect();
        assert_eq!(sent, [(7, 6), (8, 1)]);
        let mut received = [0; 6];
        client.read_exact(&mut received).unwrap();
        assert_eq!(&received, b"onetwo");
    }

    #[test]
    fn a_full_socket_says_so_and_does_not_block() {
        let (server, _client) = pair();
        let block = vec![0; 1 << 20];
        let mut sender = Sender::default();
        for _ in 0..64 {
            let mut batch = sender.batch();
            batch.push(0, server.as_fd(), std::iter::once(IoSlice::new(&block)));
            match &submit(&mut sender, batch)[0].result {
                Ok(sent) => assert!(*sent <= block.len()),
                Err(error) => return assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
            }
        }
        panic!("64 MiB went into a socket that nobody reads");
    }

    #[test]
    fn a_closed_peer_is_an_error_and_no_signal() {
        let (server, client) = pair();
        drop(client);
        let mut sender = Sender::default();
        for _ in 0..10_000 {
            let mut batch = sender.batch();
            batch.push(0, server.as_fd(), std::iter::once(IoSlice::new(b"x")));
            if let Err(error) = &submit(&mut sender, batch)[0].result {
                let kind = error.kind();
                return assert!(
                    matches!(
                        kind,
                        io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset
                    ),
                    "{kind}"
                );
            }
        }
        panic!("a closed peer was never noticed");
    }

    #[test]
    fn more_slices_than_the_kernel_takes_are_cut() {
        let (server, mut client) = pair();
        let mut sender = Sender::default();
        let mut batch = sender.batch();
        batch.push(
            0,
            server.as_fd(),
            std::iter::repeat_n(IoSlice::new(b"x"), SLICES_MAX + 10),
        );
        assert_eq!(
            *submit(&mut sender, batch)[0].result.as_ref().unwrap(),
            SLICES_MAX
        );
        let mut received = vec![0; SLICES_MAX];
        client.read_exact(&mut received).unwrap();
    }

    #[test]
    fn the_memory_of_a_batch_is_used_again() {
        let (server, _client) = pair();
        let mut sender = Sender::default();
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
