-- Does once at the start what the scripts do, on names of its own: a right that is missing, or a library, is found out
-- before anything counts on it. Several at once do not hurt each other: one runs after the other.
--
-- KEYS: a text, a sorted set, a list
local now = clock()
redis.call('SET', KEYS[1], cmsgpack.pack({ LAYOUT }), 'PXAT', text(now + 60000))
load(KEYS[1])
redis.call('SET', KEYS[1], cmsgpack.pack({ LAYOUT }), 'KEEPTTL')
redis.call('ZADD', KEYS[2], text(now), 'id')
redis.call('ZRANGE', KEYS[2], '-inf', '+inf', 'BYSCORE', 'LIMIT', 0, 1, 'WITHSCORES')
redis.call('ZRANGE', KEYS[2], '-', '+', 'BYLEX', 'LIMIT', 0, 1)
redis.call('ZREM', KEYS[2], 'id')
redis.call('RPUSH', KEYS[3], 'event')
redis.call('LTRIM', KEYS[3], -1, -1)
redis.call('LRANGE', KEYS[3], 0, -1)
redis.call('PEXPIREAT', KEYS[3], text(now + 60000))
redis.call('PERSIST', KEYS[3])
redis.call('UNLINK', KEYS[1], KEYS[2], KEYS[3])
return 'done'
