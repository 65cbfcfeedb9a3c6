-- For tests: moves every instant of the records of a prefix back, which is as if the clock had gone on. What is "never"
-- stays so. Stands behind record.lua. On one node, where a script may touch every slot.
--
-- ARGV: prefix, buckets, milliseconds
local by = tonumber(ARGV[3])

local function shift_record(name, history)
    local record = load(name)
    if not record then
        return
    end
    for _, place in ipairs({ FIRST_AT, SINCE, AT, FORGET_AT }) do
        if record[place] < NEVER then
            record[place] = record[place] - by
        end
    end
    local expires_at = record[FORGET_AT] + MARGIN
    if record[FORGET_AT] == NEVER then
        redis.call('SET', name, cmsgpack.pack(record))
    elseif expires_at <= clock() then
        redis.call('DEL', name, history)
    else
        redis.call('SET', name, cmsgpack.pack(record), 'PXAT', text(expires_at))
    end
    for place, packed in ipairs(redis.call('LRANGE', history, 0, -1)) do
        local event = cmsgpack.unpack(packed)
        event[1] = event[1] - by
        redis.call('LSET', history, place - 1, cmsgpack.pack(event))
    end
end

local function shift_set(name)
    local found = redis.call('ZRANGE', name, 0, -1, 'WITHSCORES')
    for place = 1, #found, 2 do
        local time = tonumber(found[place + 1])
        if time < NEVER then
            redis.call('ZADD', name, text(time - by), found[place])
        end
    end
end

for bucket = 0, tonumber(ARGV[2]) - 1 do
    local tag = '{' .. ARGV[1] .. ':' .. bucket .. '}:'
    for _, id in ipairs(redis.call('ZRANGE', tag .. 'index', 0, -1)) do
        shift_record(tag .. 'r:' .. id, tag .. 'h:' .. id)
    end
    shift_set(tag .. 'open')
    shift_set(tag .. 'due')
end
