//! redis-rs against a server. usage: laneway-redis-rs PORT
#![forbid(unsafe_code)]

use redis::{Commands, Connection, RedisResult, pipe, transaction};

type Told = Result<(), Box<dyn std::error::Error>>;

fn values(c: &mut Connection) -> Told {
    let _: () = c.set_ex("k", "v", 100)?;
    assert_eq!(c.get::<_, String>("k")?, "v");
    assert_eq!(c.ttl::<_, i64>("k")?, 100);
    assert!(!c.set_nx::<_, _, bool>("k", "w")?);
    assert_eq!(c.get::<_, Option<String>>("none")?, None);
    let _: () = c.mset(&[("a", 1), ("b", 2)])?;
    assert_eq!(c.mget::<_, Vec<Option<i64>>>(&["a", "none", "b"])?, [Some(1), None, Some(2)]);
    assert_eq!(c.incr::<_, _, i64>("n", 42)?, 42);
    assert_eq!(c.decr::<_, _, i64>("n", 43)?, -1);
    assert_eq!(c.exists::<_, i64>(&["a", "b", "none"])?, 2);
    assert_eq!(c.del::<_, i64>(&["a", "b", "none"])?, 2);
    assert!(c.persist::<_, bool>("k")?);
    assert_eq!(c.ttl::<_, i64>("k")?, -1);
    Ok(())
}

fn bytes_of_any_kind(c: &mut Connection) -> Told {
    let key: &[u8] = b"\r\n\0 \xff";
    let large: Vec<u8> =
        (0..5_000_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let _: () = c.set(key, &large)?;
    assert!(c.get::<_, Vec<u8>>(key)? == large, "the 5 MB differ");
    assert_eq!(c.strlen::<_, usize>(key)?, large.len());
    assert_eq!(c.del::<_, i64>(key)?, 1);
    Ok(())
}

fn pipelines(c: &mut Connection) -> Told {
    let mut plain = pipe();
    for number in 0..1000 {
        plain.set(format!("p{number}"), number).ignore().get(format!("p{number}"));
    }
    let got: Vec<i64> = plain.query(c)?;
    assert_eq!(got, (0..1000).collect::<Vec<i64>>());
    let (counted,): (i64,) = pipe().atomic().set("t", 1).ignore().incr("t", 1).query(c)?;
    assert_eq!(counted, 2);
    let summed: i64 = transaction(c, &["t"], |c, pipe| {
        let number: i64 = c.get("t")?;
        let done: Option<(i64,)> = pipe.set("t", number + 1).ignore().incr("t", 1).query(c)?;
        Ok(done.map(|(number,)| number))
    })?;
    assert_eq!(summed, 4);
    assert!(!c.mset_nx::<_, _, bool>(&[("t", 1), ("new", 2)])?);
    let _: () = c.rename("t", "u")?;
    assert_eq!(c.get::<_, i64>("u")?, 4);
    Ok(())
}

fn refused(told: RedisResult<i64>, words: &str) {
    let why = told.expect_err("it was not refused").to_string();
    assert!(why.contains(words), "{why}");
}

fn main() -> Told {
    let port = std::env::args().nth(1).ok_or("a port is wanted")?;
    for protocol in ["", "?protocol=resp3"] {
        let client = redis::Client::open(format!("redis://127.0.0.1:{port}/{protocol}"))?;
        let mut c = client.get_connection()?;
        let _: () = redis::cmd("FLUSHALL").query(&mut c)?;
        values(&mut c)?;
        bytes_of_any_kind(&mut c)?;
        pipelines(&mut c)?;
        refused(c.lpush("l", 1), "unknown command");
        refused(c.incr("k", 1), "not an integer");
        assert_eq!(redis::cmd("PING").query::<String>(&mut c)?, "PONG");
    }
    println!("redis-rs 1.8.1, 2 ways");
    Ok(())
}
