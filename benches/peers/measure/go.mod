module tollgate.example/benches/measure

go 1.26
