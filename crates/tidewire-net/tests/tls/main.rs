//! TLS against a client of rustls: the state alone, then connections of the loop.

mod event_loop;
mod peer;

use std::io::Write;

use peer::{client, configs, established, open, received, seal, sent};
use rustls::crypto::cipher::OutboundPlainMessage;
use rustls::{ConnectionTrafficSecrets, ContentType, ProtocolVersion, SupportedCipherSuite};
use tidewire_net::tls::{RECORD_BYTES_MAX, TlsError, TlsState};

#[test]
fn ciphertext_split_at_any_byte_gives_the_same_plaintext() {
    let (client_config, server_config) = configs();
    let mut checked = 0;
    for split in 0.. {
        let mut client = client(client_config.clone());
        let mut server = TlsState::new(server_config.clone()).unwrap();
        open(&mut server, &sent(&mut client)).unwrap();
        received(&mut client, &server.take_outgoing());
        // The end of the handshake, a request and a first frame in one segment.
        client.writer().write_all(b"request").unwrap();
        let mut flight = sent(&mut client);
        client.writer().write_all(b"frame").unwrap();
        flight.extend(sent(&mut client));
        if split > flight.len() {
            break;
        }
        let mut plaintext = open(&mut server, &flight[..split]).unwrap();
        plaintext.extend(open(&mut server, &flight[split..]).unwrap());
        assert_eq!(plaintext, b"requestframe", "split at {split}");
        assert!(server.is_established());
        assert_eq!(server.kept_bytes(), 0, "an idle connection holds no buffer");
        checked += 1;
    }
    assert!(checked > 100, "{checked}");
}

#[test]
fn any_length_arrives_in_both_directions() {
    let (mut client, mut server) = established();
    client.set_buffer_limit(None);
    for length in [
        1,
        RECORD_BYTES_MAX - 1,
        RECORD_BYTES_MAX,
        RECORD_BYTES_MAX + 1,
        100_000,
    ] {
        let text: Vec<u8> = (0..length).map(|index| index as u8).collect();
        let sealed = seal(&mut server, &text);
        let records = length.div_ceil(RECORD_BYTES_MAX);
        assert!(sealed.len() <= length + records * 64, "{}", sealed.len());
        assert!(received(&mut client, &sealed) == text, "{length}");
        client.writer().write_all(&text).unwrap();
        assert!(
            open(&mut server, &sent(&mut client)).unwrap() == text,
            "{length}"
        );
    }
}

#[test]
fn new_keys_of_the_client_are_taken_and_answered() {
    let (mut client, mut server) = established();
    for round in 0..3 {
        client.refresh_traffic_keys().unwrap();
        client.writer().write_all(b"with new keys").unwrap();
        assert_eq!(
            open(&mut server, &sent(&mut client)).unwrap(),
            b"with new keys"
        );
        let sealed = seal(&mut server, b"answer");
        assert_eq!(received(&mut client, &sealed), b"answer", "round {round}");
    }
}

#[test]
fn writing_in_the_middle_of_a_split_handshake_message_is_safe() {
    // Rustls stores its position in the buffer; a call with another buffer between the halves makes it panic.
    let (client, mut server) = established();
    let suite = client.negotiated_cipher_suite().unwrap();
    let (sequence, secrets) = client.dangerous_extract_secrets().unwrap().tx;
    let (ConnectionTrafficSecrets::Aes128Gcm { key, iv }
    | ConnectionTrafficSecrets::Aes256Gcm { key, iv }) = secrets
    else {
        panic!("the suite is AES")
    };
    let SupportedCipherSuite::Tls13(suite) = suite else {
        panic!("the version is 1.3")
    };
    let mut encrypter = suite.aead_alg.encrypter(key, iv);
    let mut record = |part: &[u8], number| {
        let message = OutboundPlainMessage {
            typ: ContentType::Handshake,
            version: ProtocolVersion::TLSv1_2,
            payload: part.into(),
        };
        encrypter
            .encrypt(message, sequence + number)
            .unwrap()
            .encode()
    };
    // A key update that asks for one in return.
    let message = [24, 0, 0, 1, 1];
    let (first, second) = (record(&message[..2], 0), record(&message[2..], 1));
    assert_eq!(open(&mut server, &first).unwrap(), b"");
    let before = seal(&mut server, b"meanwhile").len();
    assert_eq!(open(&mut server, &second).unwrap(), b"");
    let answered = seal(&mut server, b"meanwhile").len();
    assert!(
        answered > before,
        "the answer to the update goes before the next record"
    );
    assert_eq!(seal(&mut server, b"meanwhile").len(), before);
}

#[test]
fn garbage_and_tampering_end_with_an_alert() {
    let (_, server_config) = configs();
    let mut server = TlsState::new(server_config).unwrap();
    assert!(matches!(
        open(&mut server, b"GET / HTTP/1.1\r\n\r\n"),
        Err(TlsError::Rustls(_))
    ));

    let (mut client, mut server) = established();
    client.writer().write_all(b"text").unwrap();
    let mut ciphertext = sent(&mut client);
    *ciphertext.last_mut().unwrap() ^= 1;
    assert!(matches!(
        open(&mut server, &ciphertext),
        Err(TlsError::Rustls(_))
    ));
    let alert = server.take_outgoing();
    client.read_tls(&mut &alert[..]).unwrap();
    let error = client.process_new_packets().unwrap_err();
    assert!(matches!(error, rustls::Error::AlertReceived(_)), "{error}");
}

#[test]
fn bytes_that_never_become_a_record_are_refused() {
    let (_, mut server) = established();
    // A record that announces more than any may have.
    assert!(open(&mut server, &[0x17, 3, 3, 0xFF, 0xFF]).is_err());
}

#[test]
fn a_close_notify_is_sent_once_and_received() {
    let (mut client, mut server) = established();
    client.writer().write_all(b"last").unwrap();
    client.send_close_notify();
    assert_eq!(open(&mut server, &sent(&mut client)).unwrap(), b"last");
    assert!(server.is_peer_closed());
    let mut room = vec![0; server.room_for(0)];
    let written = server.seal_end(&mut room).unwrap();
    assert!(written > 0);
    client.read_tls(&mut &room[..written]).unwrap();
    assert!(client.process_new_packets().unwrap().peer_has_closed());
    assert_eq!(server.seal_end(&mut room).unwrap(), 0);
}
