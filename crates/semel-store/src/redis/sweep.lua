-- Frees what is no longer needed of some records. Each is read and judged again here, so what a claim has made anew
-- since the page was read stays.
--
-- KEYS: due, open, index, then record and history of each
-- ARGV: ids, in the order of the records
local now = clock()
local outcomes, records = 0, 0

local function forget(place, id)
    redis.call('UNLINK', KEYS[2 * place + 2], KEYS[2 * place + 3])
    redis.call('ZREM', KEYS[1], id)
    redis.call('ZREM', KEYS[2], id)
    redis.call('ZREM', KEYS[3], id)
    records = records + 1
end

local function drop_outcome(place, id, record)
    record[FORMAT], record[TEXT] = false, ''
    redis.call('SET', KEYS[2 * place + 2], cmsgpack.pack(record), 'KEEPTTL')
    outcomes = outcomes + 1
end

for place, id in ipairs(ARGV) do
    local is_read, record = pcall(load, KEYS[2 * place + 2])
    if not is_read then
        -- It stays for a person to look at, and out of the way of the others.
        redis.call('ZREM', KEYS[1], id)
    elseif not record or is_expired(record, now) then
        forget(place, id)
    else
        if record[FORMAT] and now >= record[AT] then
            drop_outcome(place, id, record)
        end
        local due = due_at(record)
        if due then
            redis.call('ZADD', KEYS[1], text(due), id)
        else
            redis.call('ZREM', KEYS[1], id)
        end
    end
end
return { outcomes, records }
