//! memcached's binary protocol, through the whole server over memory: what each request answers in
//! every design, large values by lanes, and what hostile clients may not do.

mod hostile;
mod kept;
mod lanes;
mod model;
mod sasl;
