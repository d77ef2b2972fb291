use super::*;

const LINK: Link = Link { peer: [2, 0, 0, 0, 0, 2], own: [2, 0, 0, 0, 0, 1] };
const PAIRS: [(&str, &str); 2] =
    [("10.9.0.2:40000", "10.9.0.1:11211"), ("[fd09::2]:40000", "[fd09::1]:11211")];

fn address(text: &str) -> SocketAddr {
    text.parse().expect("an address")
}

fn own(text: &str) -> Own {
    Own { address: address(text).ip(), scope: 7 }
}

/// A packet from `from` that comes to `to`, as its sender would write it.
fn packet(from: &str, to: &str, payload: &[u8]) -> Vec<u8> {
    let mut room = vec![0xee; 2048];
    let there = Link { peer: LINK.own, own: LINK.peer };
    let bytes = compose(&mut room, &there, &address(from), &address(to), [payload]);
    room.truncate(bytes.expect("it fits"));
    room
}

/// The checksums of a packet, computed anew the long way.
fn mend(packet: &mut [u8]) {
    let slow = |bytes: &[u8], start: u32| {
        let mut sum = start;
        for pair in bytes.chunks(2) {
            let low = pair.get(1).copied().unwrap_or(0);
            sum += u32::from(pair[0]) << 8 | u32::from(low);
        }
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        !(sum as u16)
    };
    let (addresses, udp_at) = match packet[12] {
        8 => {
            packet[24..26].fill(0);
            let field = slow(&packet[14..34], 0);
            packet[24..26].copy_from_slice(&field.to_be_bytes());
            (26..34, 34)
        }
        _ => (22..54, 54),
    };
    let udp_bytes = wire16(packet, udp_at + 4);
    let end = packet.len().min(udp_at + usize::from(udp_bytes));
    packet[udp_at + 6..udp_at + 8].fill(0);
    let pseudo: u32 = packet[addresses].chunks(2).map(|pair| u32::from(wire16(pair, 0))).sum();
    let field = slow(&packet[udp_at..end], pseudo + 17 + u32::from(udp_bytes));
    packet[udp_at + 6..udp_at + 8].copy_from_slice(&field.to_be_bytes());
}

#[test]
fn what_is_composed_is_what_is_parsed_in_both_families_and_at_every_length() {
    let body: Vec<u8> = (0..1472_u32).map(|at| (at * 31 + 5) as u8).collect();
    for (from, to) in PAIRS {
        for bytes in (0..70).chain([1399, 1400, 1401, 1452]) {
            let mut packet = packet(from, to, &body[..bytes]);
            assert!(packet.len() >= 60);
            let expected =
                Datagram { link: LINK, from: address(from), port: 11211, payload: &body[..bytes] };
            assert_eq!(parse(&packet, &own(to)), Ok(expected), "{bytes}");
            let before = packet.clone();
            mend(&mut packet);
            let zero = |at: usize| before[at..at + 2] == [0xff; 2] && packet[at..at + 2] == [0; 2];
            assert!(packet == before || zero(40) || zero(60), "{bytes}: another checksum");
        }
    }
}

#[test]
fn pieces_make_one_datagram_wherever_they_end() {
    let (from, to) = PAIRS[1];
    let whole = packet(from, to, b"a reply in pieces");
    let mut room = [0; 2048];
    let there = Link { peer: LINK.own, own: LINK.peer };
    let pieces = [&b"a"[..], b"", b" repl", b"y in pieces"];
    let bytes = compose(&mut room, &there, &address(from), &address(to), pieces).expect("fits");
    assert_eq!(room[..bytes], whole[..]);
}

#[test]
fn what_does_not_fit_or_has_no_family_is_not_composed() {
    let body = [0; 2100];
    let (v4, v6) = (PAIRS[0], PAIRS[1]);
    let mut room = [0; 2048];
    for (from, to, payload) in
        [(v4.0, v4.1, &body[..]), (v6.0, v6.1, &body[..]), (v4.0, v6.1, &body[..9])]
    {
        assert_eq!(compose(&mut room, &LINK, &address(from), &address(to), [payload]), None);
    }
    assert_eq!(payload_bytes_max(&address(v4.0), 1500), 1472);
    assert_eq!(payload_bytes_max(&address(v6.0), 1500), 1452);
    assert_eq!(payload_bytes_max(&address(v6.0), 40), 0);
}

#[test]
fn a_packet_cut_short_anywhere_is_refused() {
    for (from, to) in PAIRS {
        let packet = packet(from, to, &[7; 100]);
        for bytes in 0..packet.len() {
            let wrong = parse(&packet[..bytes], &own(to)).expect_err("it is cut");
            assert!(matches!(wrong, Wrong::Truncated | Wrong::Length), "{bytes}: {wrong:?}");
        }
    }
}

#[test]
fn every_flipped_bit_behind_the_ethernet_header_is_noticed() {
    for (from, to) in PAIRS {
        let good = packet(from, to, b"get key\r\n and enough that nothing is filled up");
        for bit in 14 * 8..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            let is_v6 = bad[12] == 0x86;
            // Traffic class, flow label and hop limit are under no checksum.
            let free = is_v6 && (matches!(bit / 8, 15..=17 | 21) || (bit / 8 == 14 && bit % 8 < 4));
            let parsed = parse(&bad, &own(to));
            assert_eq!(parsed.is_ok(), free, "bit {bit}: {parsed:?}");
        }
    }
}

fn check_wrong(pair: (&str, &str), expected: Wrong, change: impl FnOnce(&mut Vec<u8>)) {
    let mut packet = packet(pair.0, pair.1, b"get key\r\n");
    change(&mut packet);
    assert_eq!(parse(&packet, &own(pair.1)), Err(expected));
}

#[test]
fn packets_for_the_stack_are_refused() {
    let (v4, v6) = (PAIRS[0], PAIRS[1]);
    // A VLAN tag, ARP, another version.
    for pair in PAIRS {
        check_wrong(pair, Wrong::Kind, |packet| {
            packet.splice(12..12, [0x81, 0, 0, 5]);
        });
        check_wrong(pair, Wrong::Kind, |packet| packet[12..14].copy_from_slice(&[8, 6]));
        check_wrong(pair, Wrong::Kind, |packet| packet[14] ^= 0xf0);
    }
    // TCP, options, fragments: the first, the last, with a reserved bit.
    check_wrong(v4, Wrong::Kind, |packet| packet[23] = 6);
    check_wrong(v4, Wrong::Kind, |packet| packet[14] = 0x46);
    for fragment in [[0x20, 0], [0, 1], [0x80, 0]] {
        check_wrong(v4, Wrong::Kind, |packet| packet[20..22].copy_from_slice(&fragment));
    }
    // TCP, a fragment header, hop-by-hop options.
    for next in [6, 44, 0] {
        check_wrong(v6, Wrong::Kind, |packet| packet[20] = next);
    }
}

#[test]
fn lengths_that_disagree_are_refused() {
    let (v4, v6) = (PAIRS[0], PAIRS[1]);
    for length in [0, 19, 27, 36, 38, 60, 0xffff_u16] {
        check_wrong(v4, Wrong::Length, |packet| {
            packet[16..18].copy_from_slice(&length.to_be_bytes());
            mend(packet);
        });
    }
    for length in [0, 7, 16, 18, 0xffff_u16] {
        check_wrong(v6, Wrong::Length, |packet| {
            packet[18..20].copy_from_slice(&length.to_be_bytes());
        });
        check_wrong(v4, Wrong::Length, |packet| {
            packet[38..40].copy_from_slice(&length.to_be_bytes());
        });
    }
}

#[test]
fn a_checksum_may_be_absent_over_ipv4_only_and_be_left_to_the_card() {
    let (v4, v6) = (PAIRS[0], PAIRS[1]);
    let mut without = packet(v4.0, v4.1, b"x");
    without[40..42].fill(0);
    assert!(parse(&without, &own(v4.1)).is_ok());
    check_wrong(v6, Wrong::Checksum, |packet| packet[60..62].fill(0));
    for (from, to) in PAIRS {
        let mut partial = packet(from, to, b"x");
        let (addresses, at) = if from == v4.0 { (26..34, 34) } else { (22..54, 54) };
        let pseudo = fold(sum_pseudo(&partial[addresses], 9));
        partial[at + 6..at + 8].copy_from_slice(&pseudo.to_ne_bytes());
        assert!(parse(&partial, &own(to)).is_ok());
        partial[at + 7] ^= 1;
        assert_eq!(parse(&partial, &own(to)), Err(Wrong::Checksum));
    }
}

#[test]
fn impossible_senders_and_other_destinations_are_refused() {
    for from in ["0.0.0.0:9", "0.1.2.3:9", "127.0.0.1:9", "224.0.0.1:9", "255.255.255.255:9"] {
        check_wrong((from, PAIRS[0].1), Wrong::Source, |_| {});
    }
    for from in ["[::]:9", "[::1]:9", "[ff02::1]:9", "[::ffff:10.0.0.1]:9"] {
        check_wrong((from, PAIRS[1].1), Wrong::Source, |_| {});
    }
    for (from, to) in PAIRS {
        check_wrong((to, to), Wrong::Source, |_| {});
        let nobody = from.replace("40000", "0");
        check_wrong((&nobody, to), Wrong::Source, |_| {});
        assert_eq!(parse(&packet(from, to, b"x"), &own(from)), Err(Wrong::Destination));
    }
}

#[test]
fn a_neighbour_known_by_its_link_local_address_is_answered_on_its_link() {
    let packet = packet("[fe80::2]:9", PAIRS[1].1, b"x");
    let from = parse(&packet, &own(PAIRS[1].1)).expect("good").from;
    assert_eq!(from.to_string(), "[fe80::2%7]:9");
}

#[test]
fn sums_are_those_of_the_rfc() {
    // RFC 1071 §3.
    let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
    assert_eq!(fold(sum(&bytes, 0)).to_ne_bytes(), [0xdd, 0xf2]);
}
