module semel/clients

go 1.19
