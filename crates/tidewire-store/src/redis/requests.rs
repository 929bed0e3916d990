//! Requests as the bytes of the Redis protocol, for batches with many words. The library copies each word twice, and needs a third of the
//! processor time of a commit for that.

use redis::{Connection, RedisResult};

/// Requests that are sent together.
#[derive(Debug, Default)]
pub(super) struct Requests {
    bytes: Vec<u8>,
    count: usize,
}

impl Requests {
    /// No requests, with memory for this many bytes.
    pub(super) fn with_capacity(bytes: usize) -> Self {
        Self {
            bytes: Vec::with_capacity(bytes),
            count: 0,
        }
    }

    /// Adds a request of these words.
    pub(super) fn add<const COUNT: usize>(&mut self, words: [&str; COUNT]) {
        self.begin(COUNT);
        for word in words {
            self.word(&[word.as_bytes()]);
        }
    }

    /// Begins a request. This many words must follow.
    pub(super) fn begin(&mut self, word_count: usize) {
        self.count += 1;
        self.number(b'*', word_count);
    }

    /// Adds a word that consists of these parts.
    pub(super) fn word(&mut self, parts: &[&[u8]]) {
        self.number(b'$', parts.iter().map(|part| part.len()).sum());
        for part in parts {
            self.bytes.extend_from_slice(part);
        }
        self.bytes.extend_from_slice(b"\r\n");
    }

    /// Adds words that were encoded before.
    pub(super) fn encoded(&mut self, words: &[u8]) {
        self.bytes.extend_from_slice(words);
    }

    fn number(&mut self, kind: u8, number: usize) {
        self.bytes.push(kind);
        let mut digits = itoa::Buffer::new();
        self.bytes
            .extend_from_slice(digits.format(number).as_bytes());
        self.bytes.extend_from_slice(b"\r\n");
    }

    /// The number of requests, and so of responses.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// The bytes so far.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The bytes.
    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// Sends all requests. Their responses must be received, or the connection given up.
    pub(super) fn send(&self, connection: &mut Connection) -> RedisResult<()> {
        connection.send_packed_command(&self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_have_the_form_of_the_protocol() {
        let mut requests = Requests::default();
        requests.add(["GET", "é"]);
        requests.begin(3);
        requests.word(&[b"SET"]);
        let mut words = Requests::default();
        words.word(&[b"a", b"b"]);
        words.word(&[]);
        requests.encoded(&words.into_bytes());
        let expected = "*2\r\n$3\r\nGET\r\n$2\r\né\r\n*3\r\n$3\r\nSET\r\n$2\r\nab\r\n$0\r\n\r\n";
        assert_eq!(requests.bytes(), expected.as_bytes());
        assert_eq!(requests.count(), 2);
    }
}
