//! Files that are wrong, each in its way, are told in a sentence that names the flag and the file.

use laneway_certs::{Authority, Folder, Pair, TERMS};
use laneway_tls::{Files, Identity, Terms, Verify};
use std::path::PathBuf;

/// 2026-01-01.
const NOW: u64 = 1_767_225_600;

fn refused(files: &Files, words: &str) {
    let told = Identity::read(files, &TERMS, NOW).err().unwrap_or_else(|| panic!("{words}"));
    assert!(told.contains(words), "{told}");
}

#[test]
fn a_good_pair_is_read_and_its_dates_are_told() {
    let (folder, authority) = (Folder::new(), Authority::new("files"));
    let identity = Identity::read(&folder.files(&authority.pair_until(2027), None), &TERMS, NOW);
    let identity = identity.unwrap_or_else(|told| panic!("{told}"));
    assert_eq!(identity.valid_seconds, (157_766_400, 1_798_761_600));
    assert_eq!(identity.read_seconds, NOW);
    // From 2050 on dates are written in another way.
    let late = Identity::read(&folder.files(&authority.pair_until(2051), None), &TERMS, NOW);
    let late = late.unwrap_or_else(|told| panic!("{told}"));
    assert_eq!(late.valid_seconds, (157_766_400, 2_556_144_000));
    // Both in one file, as memcached allows it.
    let Pair { chain, key } = authority.pair();
    let both = folder.write("both.pem", &format!("{key}{chain}{}", authority.pem));
    let files = Files::new(("-o ssl_chain_cert", both.clone()), ("-o ssl_chain_cert", both), None);
    assert!(Identity::read(&files, &TERMS, NOW).is_ok());
}

#[test]
fn what_is_wrong_with_a_file_is_told() {
    let (folder, authority) = (Folder::new(), Authority::new("files"));
    let (good, other) = (authority.pair(), authority.pair());
    let pair = |chain: &str, key: &str| Pair { chain: chain.to_owned(), key: key.to_owned() };
    for (pair, words) in [
        (pair("", &good.key), "--tls-cert"),
        (pair("", &good.key), "holds no certificate"),
        (pair(&good.key, &good.key), "holds no certificate"),
        (pair(&good.chain, ""), "key.pem: holds no private key"),
        (pair(&good.chain, &good.chain), "holds no private key"),
        (pair(&good.chain, &other.key), "is not the key of the certificate in"),
        (authority.pair_until(2025), "the certificate expired at 2025-01-01"),
        (
            pair("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", &good.key),
            "is no certificate",
        ),
        (pair("-----BEGIN CERTIFICATE-----\n%%%\n", &good.key), "is no PEM file"),
        (
            pair(
                &good.chain,
                "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n\
                 -----END ENCRYPTED PRIVATE KEY-----\n",
            ),
            "the key is encrypted",
        ),
        (
            pair(&good.chain, "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"),
            "cannot be used",
        ),
    ] {
        refused(&folder.files(&pair, None), words);
    }
    let nowhere = PathBuf::from("/no/such/file");
    let good = folder.files(&good, None);
    let chain = ("--tls-cert", nowhere.clone());
    refused(
        &Files::new(chain, (good.key.flag, good.key.path.clone()), None),
        "--tls-cert /no/such/file: cannot be read",
    );
    let key = ("--tls-key", nowhere);
    refused(
        &Files::new((good.chain.flag, good.chain.path.clone()), key, None),
        "--tls-key /no/such/file: cannot be read",
    );
}

#[test]
fn authorities_that_are_none_are_refused() {
    let (folder, authority) = (Folder::new(), Authority::new("files"));
    let terms = Terms { verify: Verify::Always, ..TERMS };
    for text in ["", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"] {
        let files = folder.files(&authority.pair(), Some(text));
        let told = Identity::read(&files, &terms, NOW).err().expect("it is refused");
        assert!(told.contains("--tls-client-ca"), "{told}");
    }
}
